import {createReadStream} from 'node:fs'
import {join} from 'node:path'
import {fileURLToPath} from 'node:url'
import type {FastifyInstance} from 'fastify'

/** Scripts that pages load, by name. */
const SCRIPTS = {
  'workbench.js': () => join(import.meta.dirname, '../page/workbench.js'),
  'echarts.js': () => fileURLToPath(import.meta.resolve('echarts/dist/echarts.esm.min.js')),
}

/** Adds `/assets/`: the scripts of the workbench. */
export function addAssets(server: FastifyInstance): void {
  for (const [name, locate] of Object.entries(SCRIPTS)) {
    server.get(`/assets/${name}`, async (_request, reply) =>
      reply
        .type('text/javascript; charset=utf-8')
        .header('cache-control', 'private, max-age=3600')
        .send(createReadStream(locate())),
    )
  }
}
