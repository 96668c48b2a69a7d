import {readFileSync, realpathSync} from 'node:fs'
import {findPackageJSON} from 'node:module'
import {dirname, join} from 'node:path'
import {fileURLToPath, pathToFileURL} from 'node:url'
import type {FastifyInstance} from 'fastify'
import {z} from 'zod'
import {parseJson} from '../json.ts'

const OWN = join(import.meta.dirname, '../page')

/** Scripts that pages load, by name; the packages they import come with them. */
const SCRIPTS = {
  'workbench.js': join(OWN, 'workbench.js'),
  'sql-editor.js': join(OWN, 'sql-editor.js'),
  'echarts.js': fileURLToPath(import.meta.resolve('echarts/dist/echarts.esm.min.js')),
}

/** `import {a, b} from 'package'`, from its line's start. */
const IMPORT = /^((?:import|export)[\w\s{},*$]* from )'([^'./][^']*)'/gm

/**
 * Adds `/assets/`: the scripts of the workbench, and the packages that they import. A browser is told the address of each
 * instead of its name, so that packages run in it as they were published.
 */
export function addAssets(server: FastifyInstance): void {
  const added = new Set<string>()
  const add = (name: string, file: string) => {
    if (added.has(name)) return
    added.add(name)
    const script = readFileSync(file, 'utf8').replace(IMPORT, (_whole, names: string, imported: string) => {
      add(`${imported}.js`, findModule(imported, file))
      return `${names}'/assets/${imported}.js'`
    })
    server.get(`/assets/${name}`, async (_request, reply) =>
      reply
        .type('text/javascript; charset=utf-8')
        .header('cache-control', 'private, max-age=3600')
        .send(script),
    )
  }
  for (const [name, file] of Object.entries(SCRIPTS)) add(name, file)
}

const packageSchema = z.object({exports: z.object({import: z.string()})})

/** The module of a package as a script finds it that imports it: `import.meta.resolve` tells only what this file would find. */
function findModule(name: string, importer: string): string {
  const path = findPackageJSON(name, pathToFileURL(importer))
  if (path === undefined) throw new Error(`no package '${name}' for '${importer}'`)
  const {exports} = packageSchema.parse(parseJson(readFileSync(path, 'utf8')))
  // Links followed, as Node does: what a package imports lies beside where it really is.
  return realpathSync(join(dirname(path), exports.import))
}
