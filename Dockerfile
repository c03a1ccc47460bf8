FROM node:20-slim AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN npm ci --ignore-scripts
COPY LICENSE tsconfig.base.json ./
COPY src ./src
RUN npx tsc -b src && npm prune --omit=dev

FROM node:20-slim
ENV NODE_ENV=production
WORKDIR /app
COPY --from=build /app/package.json /app/LICENSE ./
COPY --from=build /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
# Nobody in particular; k8s/ runs it under the same number.
USER 10001:10001
ENTRYPOINT ["node", "--enable-source-maps", "/app/dist/cli.js"]
CMD ["--help"]
