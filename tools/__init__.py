"""What the repository needs to build and try itself: bootstrap, images, a Kubernetes of its own, the demo."""
