import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {fileURLToPath} from 'node:url'
import type {FastifyInstance} from 'fastify'

/** Scripts that pages load; what they import comes with them. */
const SCRIPTS = ['workbench.js', 'sql-editor.js']

/** A package's name where a script imports it. */
const IMPORT = /(^(?:import|export)[\w\s{},*$]* from |\bimport\()'([^'./][^']*)'/gm

/**
 * Adds `/assets/`: the scripts of the workbench, and the packages that they import. A browser is told the address of each
 * instead of its name, so that packages run in it as they were published.
 */
export function addAssets(server: FastifyInstance): void {
  const added = new Set<string>()
  const add = (name: string, file: string) => {
    if (added.has(name)) return
    added.add(name)
    const script = readFileSync(file, 'utf8').replace(IMPORT, (_whole, start: string, imported: string) => {
      add(`${imported}.js`, fileURLToPath(import.meta.resolve(imported)))
      return `${start}'/assets/${imported}.js'`
    })
    server.get(`/assets/${name}`, async (_request, reply) =>
      reply
        .type('text/javascript; charset=utf-8')
        .header('cache-control', 'private, max-age=3600')
        .send(script),
    )
  }
  for (const name of SCRIPTS) add(name, join(import.meta.dirname, '../page', name))
}
