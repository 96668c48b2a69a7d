import {existsSync, mkdirSync, statSync} from 'node:fs'
import {join} from 'node:path'
import type {FastifyInstance} from 'fastify'
import type {DataFolder} from '../store/data-folder.ts'
import {isFile, readWritten, writeFileAtomically} from '../store/files.ts'
import {LONGEST_ADDRESS} from './figures.ts'
import {addressOf, type Filter, findFault, parseFilter} from './filter.ts'
import {refuse} from './http-server.ts'
import {linkOf, listNamed, NAME} from './pages.ts'

/** What people save for everybody, as files of `queries/` in the data folder: a query, or a filter as the end of an address. */
type Kind = '.sql' | '.filter'

/** The names of what was saved. */
export const listSaved = ({queries}: DataFolder, kind: Kind) => listNamed(queries, kind)

/** The text of a saved query; undefined of none. */
export function readSavedQuery(folder: DataFolder, name: string): string | undefined {
  if (!listSaved(folder, '.sql').includes(name)) return undefined
  return readWritten(join(folder.queries, `${name}.sql`)).toString()
}

/** The filters that were saved, by name; a file that holds none is left out. */
export const listSavedFilters = (folder: DataFolder): {name: string; filter: Filter}[] =>
  listSaved(folder, '.filter').flatMap((name) => {
    const file = join(folder.queries, `${name}.filter`)
    if (!isFile(file) || statSync(file).size > LONGEST_ADDRESS) return []
    const query = new URLSearchParams(readWritten(file).toString().trim())
    for (const clock of ['as_of', 'known_at']) query.delete(clock)
    const filter = parseFilter(query)
    return filter.condition === undefined || findFault(filter) !== undefined ? [] : [{name, filter}]
  })

/**
 * Adds `POST /sql/queries`, which saves the query `q` of a form as `name`, and `POST /filters`, which saves the filter of a form. One
 * of this name stays as it is: the page asks whether to replace the query, and the form then says so with `replace`, the name once
 * more; the filter takes another name.
 */
export function addSaved(server: FastifyInstance, folder: DataFolder): void {
  const formOf = (body: unknown) => (body instanceof URLSearchParams ? body : new URLSearchParams())
  const save = (file: string, text: string) => {
    mkdirSync(folder.queries, {recursive: true})
    writeFileAtomically(file, `${text}\n`)
  }
  server.post('/sql/queries', async (request, reply) => {
    const form = formOf(request.body)
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
    save(file, sql)
    return await reply.redirect(addressOf('/sql', filter, {saved: [name]}), 303)
  })
  server.post('/filters', async (request, reply) => {
    const form = formOf(request.body)
    const name = form.get('save_as') ?? ''
    const filter = parseFilter(form)
    const notSaved = (status: number, why: string) =>
      refuse(request, reply, status, {title: 'Not saved', problem: `Not saved: ${why}.`})
    const fault = findFault(filter)
    if (fault !== undefined) return await notSaved(400, fault.replace(/\.$/, ''))
    if (!NAME.test(name) || filter.condition === undefined)
      return await notSaved(400, 'expected a choice of deals, and a name of letters, digits, _ and -')
    // A saved filter follows the day that is shown.
    const text = addressOf('', filter, {as_of: [], known_at: []}).slice(1)
    if (text.length >= LONGEST_ADDRESS) return await notSaved(400, 'expected fewer values')
    const file = join(folder.queries, `${name}.filter`)
    if (existsSync(file)) return await notSaved(409, `there is a filter '${name}' already; take another name`)
    save(file, text)
    return await reply.redirect(linkOf(filter)(form.get('path') ?? '/') ?? '/', 303)
  })
}
