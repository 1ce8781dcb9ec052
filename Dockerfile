# The static binary of `make dist` and nothing else: make image
FROM scratch
ARG DIST
COPY ${DIST}/pintle /pintle
# A store needs a volume here that this user may write; with --etcd-servers or --storage-backend=memory it does not.
WORKDIR /data
USER 65532:65532
EXPOSE 6443
ENTRYPOINT ["/pintle"]
CMD ["--bind-address=0.0.0.0", "--data-dir=/data"]
