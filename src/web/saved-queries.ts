import {existsSync, mkdirSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
import type {FastifyInstance} from 'fastify'
import {writeFileAtomically} from '../warehouse/atomic-file.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'
import {addressOf, parseFilter} from './filter.ts'
import {addFormRoutes} from './form.ts'
import {listNamed, NAME} from './named-files.ts'
import {refuse} from './refusal.ts'

/** The names of the queries that were saved: `queries/*.sql` in the data folder. */
export const listSavedQueries = ({queries}: DataFolder) => listNamed(queries, '.sql')

/** The text of a saved query; undefined of none. */
export function readSavedQuery(folder: DataFolder, name: string): string | undefined {
  if (!listSavedQueries(folder).includes(name)) return undefined
  return readFileSync(join(folder.queries, `${name}.sql`), 'utf8')
}

/**
 * Adds `POST /sql/queries`: saves the query `q` of a form as `name`. One of this name stays as it is, and the page asks whether
 * to replace it; the form then says so with `replace`, the name once more.
 */
export function addSavedQueries(server: FastifyInstance, folder: DataFolder): void {
  addFormRoutes(server, (scope) => {
    scope.post('/sql/queries', async (request, reply) => {
      const {body} = request
      const form = body instanceof URLSearchParams ? body : new URLSearchParams()
      const name = form.get('name') ?? ''
      const sql = (form.get('q') ?? '').replaceAll('\r\n', '\n').trim()
      if (!NAME.test(name) || sql === '')
        return await refuse(request, reply, 400, {
          title: 'Not saved',
          problem: 'Not saved: expected a query, and a name of letters, digits, _ and -.',
        })
      const filter = parseFilter(form)
      const file = join(folder.queries, `${name}.sql`)
      if (existsSync(file) && form.get('replace') !== name)
        return await reply.redirect(addressOf('/sql', filter, {q: [sql], taken: [name]}), 303)
      mkdirSync(folder.queries, {recursive: true})
      writeFileAtomically(file, `${sql}\n`)
      return await reply.redirect(addressOf('/sql', filter, {saved: [name]}), 303)
    })
  })
}
