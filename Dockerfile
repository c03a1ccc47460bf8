# docker build -t sutler .                                        the image for clusters
# docker build -t sutler-sample-driver --target sample-driver .   the driver that k8s/dev uses

# The digest names one build of the image for all platforms; CONTRIBUTING.md says how to renew it.
FROM node:24.21.0-bookworm-slim@sha256:d6aa754f16b3197301076f047b5def2f02ea1dbbc2ca920407d46d7ec7f87b20 AS base

FROM base AS build
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

# What both images share. Without USER, as external-provisioner's image: the user of a container in
# a driver's pod is the one that can open the driver's socket, root unless the pod names another.
# The manifests in k8s/ name an unprivileged one.
FROM base AS runtime
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
# Redis for sutler in the place of external-provisioner; with REDIS_URL it is not started. openssl for
# the certificates of k8s/make-secrets.
RUN apt-get update \
  && apt-get install --yes --no-install-recommends openssl redis-server \
  && rm -rf /var/lib/apt/lists/*
# The bundle in the place of dist/, in which Node would open hundreds of files to start a process.
# It contains the packages too.
COPY --from=build /app/bundle ./dist
# What `sutler migrate` puts beside a driver, and the program that makes Secrets in a cluster.
COPY k8s ./k8s
# Some manifests name external-provisioner's program; kubectl exec finds sutler by its own name.
RUN printf '#!/bin/sh\nexec node --enable-source-maps /app/dist/cli.js "$@"\n' > /csi-provisioner \
  && chmod 755 /csi-provisioner && ln -s /csi-provisioner /usr/local/bin/sutler
# Without arguments it takes the place of external-provisioner's container.
ENTRYPOINT ["node", "--enable-source-maps", "/app/dist/cli.js"]
