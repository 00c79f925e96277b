"""A file for each thing that is looked at in the container; `root` is the folder that stands for / everywhere."""
