FROM debian:12
RUN apt-get update \
    && apt-get install -y --no-install-recommends postgresql postgresql-contrib patroni python3-etcd etcd-server haproxy \
    && install -d -o postgres -g postgres /run/postgresql \
    && rm -rf /var/lib/apt/lists/*
