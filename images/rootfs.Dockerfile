# The base of images that are built without a registry: a Debian root file system that tools/images makes with mmdebstrap.
FROM scratch
ADD rootfs.tar /
ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
CMD ["python3"]
