"""Container images without a registry or a docker engine: Debian root file system, wheels, buildah, OCI archives.

`build_images()` is the whole interface. Everything it makes is kept in the cache under a hash of what went in.
"""

from tools.images.build import ImageArchive, build_images

__all__ = ["ImageArchive", "build_images"]
