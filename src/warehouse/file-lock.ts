import {DatabaseSync} from 'node:sqlite'
import {setTimeout as delay} from 'node:timers/promises'

/** How often whoever waits looks again. */
const LOOK_MS = 5

/**
 * Takes a lock that many readers hold together, or one writer alone; who dies gives back what it held. Everybody comes in by a
 * gate, which a writer keeps shut while it waits: so no reader comes before it that is not in yet.
 *
 * @param path an empty file, made where it is missing, as `<path>.gate` is: SQLite's locks on them are the lock
 * @returns undefined when others still held it after `waitMs`
 */
export async function takeFileLock(
  path: string,
  mode: 'read' | 'write',
  waitMs: number,
): Promise<Disposable | undefined> {
  const until = performance.now() + waitMs
  using gate = await take(`${path}.gate`, 'begin exclusive', until)
  const begin = mode === 'write' ? 'begin exclusive' : 'begin; select count(*) from sqlite_schema'
  return gate && (await take(path, begin, until))
}

async function take(path: string, begin: string, until: number): Promise<Disposable | undefined> {
  const db = new DatabaseSync(path, {timeout: 0})
  for (;;) {
    try {
      db.exec(begin)
      return db
    } catch (error) {
      const isBusy = error instanceof Error && 'errcode' in error && error.errcode === SQLITE_BUSY
      if (isBusy && performance.now() < until) {
        if (db.isTransaction) db.exec('rollback')
        await delay(LOOK_MS)
        continue
      }
      db.close()
      if (isBusy) return undefined
      throw error
    }
  }
}

const SQLITE_BUSY = 5
