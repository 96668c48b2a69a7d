FROM node:24-slim
ENV NODE_ENV=production
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
# The image brings Node: the pinned runtime of development is a devDependency.
RUN npm ci --omit=dev && npm cache clean --force
COPY bin ./bin
COPY src ./src
COPY sql ./sql
COPY pages ./pages
COPY evidence ./evidence
COPY jobs ./jobs
COPY templates ./templates
RUN install -d -m 700 -o node -g node /data /key
USER node
# The root file system may be read-only (docker run --read-only --tmpfs /tmp -v loantape:/data -v loantape-key:/key).
VOLUME ["/data", "/key"]
ENV LOANTAPE_DATA_DIR=/data LOANTAPE_TAPE_KEY_FILE=/key/tape.key XDG_CACHE_HOME=/tmp
# Node itself is process 1, so that it gets SIGTERM.
ENTRYPOINT ["node", "--max-semi-space-size=2", "/app/bin/loantape.js"]
CMD ["status"]
