"""The main job from nothing: a cluster, the operator, an object, pods, traffic, and residency on the terminal."""
