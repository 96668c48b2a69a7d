import {realpathSync} from 'node:fs'
import {basename, join} from 'node:path'
import {isDeepStrictEqual} from 'node:util'
import {z} from 'zod'
import {type Fault, LoantapeError, messageOf} from '../core/errors.ts'
import {groupThousands, quantity} from '../core/money.ts'
import {listSome} from '../core/text.ts'
import {type Database, quoteLiteral} from '../store/database.ts'
import {findFileFault} from '../store/files.ts'
import {readBridge} from '../store/moment.ts'
import {openRelease, RELEASE_NEXT, type Release, type ReleaseTable} from '../store/release.ts'
import {countRows, digestRows} from '../store/sql.ts'

/**
 * Unless `isQuick`, also reads the tables: they must hold the rows of their files, and `mart.run` the last walk of the manifest.
 */
export async function verifyRelease(release: Release, {isQuick = false} = {}): Promise<Fault[]> {
  const {dir, manifest} = release
  const [name, id] = [basename(realpathSync(dir)), manifest.release_id]
  const faults: Fault[] = []
  const note = (problem: string, next = RELEASE_NEXT) => void faults.push({problem, next})
  const damaged = new Set<string>()
  for (const {file, ...written} of manifest.tables) {
    const fault = findFileFault(join(dir, file), written)
    if (!fault) continue
    damaged.add(file)
    note(`File '${file}' of release ${id} ${fault}.`)
  }
  if (name === 'current')
    note(
      `'current' is a folder: expected a link to one of releases/, as a copy keeps it with 'cp -a'.`,
      'Remove it and run `loantape build`, which makes it again.',
    )
  else if (id !== name || name.slice(0, 10) !== manifest.as_of)
    note(`The manifest of release ${name} names ${id} as of ${manifest.as_of}.`)
  await using db = await openRelease(release).catch((error: unknown) => {
    if (!(error instanceof LoantapeError)) throw error
    note(error.problem)
    return undefined
  })
  if (!db || isQuick) return faults
  for (const table of manifest.tables) {
    const found = await findFault(db, release, {...table, isWhole: !damaged.has(table.file)}).catch(
      (error: unknown) => `cannot be read (${messageOf(error).split('\n')[0]})`,
    )
    if (found) note(`Table '${table.name}' of release ${id} ${found}.`)
  }
  return faults
}

/** How many differing rows to read for the ids in a finding; a changed row takes two. */
const FOUND = 7

/** A damaged file is not compared. */
async function findFault(
  db: Database,
  {dir, manifest: {source}}: Release,
  {name, file, rows: listed, isWhole}: ReleaseTable & {isWhole: boolean},
): Promise<string | undefined> {
  const [table, stored] = [`from release.${name}`, `from read_parquet(${quoteLiteral(join(dir, file))})`]
  const digest = await digestRows(db, table)
  if (isWhole && (await digestRows(db, stored)) !== digest) {
    const differing = `(((${table}) except all (${stored})) union all ((${stored}) except all (${table})))`
    const rows = await db.all(
      z.record(z.string(), z.unknown()),
      `from ${differing} order by all limit ${FOUND}`,
    )
    const ids = [...new Set(rows.map((row) => String(Object.values(row)[0])))]
    return `differs from ${file} by ${quantity(await countRows(db, differing), 'row')}: ${listSome(ids) || 'other types'}`
  }
  const [count] = digest.split(' ')
  if (count !== `${listed}`)
    return `has ${quantity(Number(count), 'row')}: its manifest says ${groupThousands(listed)}`
  if (name !== 'mart.run') return undefined
  const walk = await readBridge(db, `release.mart.run where walk_id = ${quoteLiteral(source.walk_id)}`)
  return isDeepStrictEqual(walk, source) ? undefined : 'does not hold the last walk as the manifest has it'
}
