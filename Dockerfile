# docker build -t sutler .                                        the image for clusters
# docker build -t sutler-sample-driver --target sample-driver .   the driver that k8s/dev uses

# The digests name one build of each image for all platforms; CONTRIBUTING.md says how to renew them.
# The bundle is the same for every platform, so this stage runs on that of the builder.
FROM --platform=$BUILDPLATFORM docker.io/library/node:24.21.0-trixie-slim@sha256:8ec5d7557396cfe32d21c3f9c13072355ceab22b584578ca4bb28af31120cffe AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN npm ci --ignore-scripts
COPY LICENSE tsconfig.base.json ./
COPY src ./src
COPY scripts/bundle.mjs ./scripts/
RUN npx tsc -b src && node scripts/bundle.mjs bundle

FROM build AS build-sandbox
COPY sandbox ./sandbox
RUN npx tsc -b sandbox

FROM docker.io/library/node:24.21.0-trixie-slim@sha256:8ec5d7557396cfe32d21c3f9c13072355ceab22b584578ca4bb28af31120cffe AS node

# What both images share. Without USER, as external-provisioner's image: the user of a container in
# a driver's pod is the one that can open the driver's socket, root unless the pod names another.
# The manifests in k8s/ name an unprivileged one. No program may change its user: nothing here uses
# su, mount or passwd.
FROM docker.io/library/debian:trixie-20261005-slim@sha256:a29215f6a35e51e22adffa17f89e9d2ef06214e64a2bad10d765c46aea49f11f AS runtime
RUN find / -xdev -type f -perm /6000 -exec chmod ug-s {} +
# Node without npm, which nothing here calls.
COPY --from=node /usr/local/bin/node /usr/local/bin/node
COPY --from=node /usr/local/LICENSE /usr/local/share/doc/node/LICENSE
ENV NODE_ENV=production
WORKDIR /app
COPY --from=build /app/package.json /app/LICENSE ./

FROM runtime AS sample-driver
# It also needs packages that are for development only.
COPY --from=build /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
COPY --from=build-sandbox /app/dist-dev ./dist-dev
ENTRYPOINT ["node", "--enable-source-maps", "/app/dist-dev/sandbox/cli.js"]
CMD ["sandbox-driver", "--help"]

# The last stage is what a build without --target makes. It contains nothing of the sandbox.
FROM runtime AS sutler
LABEL org.opencontainers.image.title="sutler" \
  org.opencontainers.image.description="Provisions storage for Kubernetes: PersistentVolumeClaims to CSI volumes, through a durable queue." \
  org.opencontainers.image.licenses="Apache-2.0" \
  org.opencontainers.image.source="https://github.com/sutler-dev/sutler"
# Valkey for sutler in the place of external-provisioner; with REDIS_URL it is not started. openssl
# for the certificates of k8s/make-secrets. Their versions are those of the day of Debian's image,
# which names its archive of that day in a comment: two builds have the same.
RUN sed -i '/^# http.*snapshot/{s/^#/URIs:/;n;d}' /etc/apt/sources.list.d/debian.sources \
  && grep -q '^URIs: http.*snapshot' /etc/apt/sources.list.d/debian.sources \
  && apt-get update -o Acquire::Check-Valid-Until=false -o Acquire::Retries=3 \
  && apt-get install -o Acquire::Retries=3 --yes --no-install-recommends openssl valkey-server \
  && rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/dpkg.log /var/cache/ldconfig
# Half of the container's memory for Node's heap: the rest is for Redis, buffers and code. A small
# nursery, since most objects are short-lived; and malloc gives memory back that it no longer uses.
# A pod may set each of these variables itself.
ENV NODE_OPTIONS="--max-semi-space-size=1 --max-old-space-size-percentage=50" \
  MALLOC_ARENA_MAX=2 MALLOC_TRIM_THRESHOLD_=131072
# The bundle in the place of dist/, in which Node would open hundreds of files to start a process.
# It contains the packages too.
COPY --from=build /app/bundle ./dist
# Node's compiled form of the code that a process loads, for root: the user of a container in a
# driver's pod. A sixth less CPU until the first volume.
ENV NODE_COMPILE_CACHE=/app/compile-cache
RUN node dist/cli.js all --help > /dev/null
# The program that makes Secrets in a cluster, and its manifests.
COPY k8s ./k8s
# Some manifests name external-provisioner's program; kubectl exec finds sutler by its own name.
RUN printf '#!/bin/sh\nexec node /app/dist/cli.js "$@"\n' > /csi-provisioner \
  && chmod 755 /csi-provisioner && ln -s /csi-provisioner /usr/local/bin/sutler
# Without arguments it takes the place of external-provisioner's container.
ENTRYPOINT ["node", "/app/dist/cli.js"]
