import {existsSync} from 'node:fs'
import type {Config} from '../../src/core/config.ts'
import type {World} from '../../src/core/types.ts'
import {openStateDb, type StateDb} from '../../src/store/state-db.ts'
import type {WebSide} from '../../src/web/http-server.ts'
import {startWeb} from '../../src/web/web-server.ts'
import type {Lab} from '../support/lab.ts'

type Tools = Parameters<typeof startWeb>[1]

/** A web side over a lab's data folder, with its own state database; disposing it closes both. */
export interface LabSide extends WebSide {
  stateDb: StateDb
  get(path: string, headers?: Record<string, string>): Promise<Response>
  /** The body of a path's answer. */
  read(path?: string): Promise<string>
  /** The text of a page, without its markup. */
  readText(path?: string): Promise<string>
}

/** Serves a lab's folder on a free port. */
export async function serveLab(
  lab: Lab,
  {
    world = lab.createWorld(),
    folder = lab.folder,
    jobs = [],
    env = lab.env,
    ...config
  }: Partial<Config & Omit<Tools, 'stateDb'>> & {world?: World} = {},
): Promise<LabSide> {
  const stateDb = openStateDb(existsSync(folder.root) ? folder.stateDb : ':memory:')
  const tools = {stateDb, folder, jobs, env}
  const side = await startWeb({...lab.config, webPort: 0, ...config}, tools, world)
  const get = (path: string, headers: Record<string, string> = {}) => fetch(side.url + path, {headers})
  const read = async (path = '/') => (await get(path)).text()
  return {
    ...side,
    stateDb,
    get,
    read,
    readText: async (path) =>
      (await read(path))
        .replaceAll(/<[^>]+>/g, ' ')
        .replaceAll('&#39;', "'")
        .replaceAll(/\s+/g, ' '),
    async [Symbol.asyncDispose]() {
      await side[Symbol.asyncDispose]()
      if (stateDb.db.isOpen) stateDb[Symbol.dispose]()
    },
  }
}
