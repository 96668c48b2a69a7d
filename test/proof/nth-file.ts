import assert from 'node:assert/strict'
import fs, {existsSync, rmSync} from 'node:fs'
import {explainError} from '../../src/core/errors.ts'
import {exportRelease} from '../../src/outputs.ts'
import {syncDeals} from '../../src/pipeline.ts'
import {type DataFolder, dataFolderAt} from '../../src/store/data-folder.ts'
import {type FileOperation, interceptFiles} from '../support/file-operations.ts'
import {aDeal, createLab, DAY_1, DAY_2, someDeals} from '../support/lab.ts'
import {type ProofRequest, type Proved, proveCases} from './proof.ts'
import {createQuickWorld} from './quick-world.ts'
import {readPortfolio, requireSoundFolder, requireWholeFiles} from './soundness.ts'

/** The documented code of each disk fault, and the system's words for it. */
const DISK = {
  EIO: {code: 'DISK_FAULT', words: 'i/o error'},
  ENOSPC: {code: 'DISK_FULL', words: 'no space left on device'},
}

interface Case {
  isNew: boolean
  nth: number
  code: keyof typeof DISK
  isForEver: boolean
}

/** Operations that change files: functions by their names in `node:fs/promises`, and methods of open files. */
const CHANGING =
  'mkdir writeFile write rename link symlink copyFile chmod fsync fdatasync rm unlink rmdir truncate utimes appendFile cp open'
const CHANGING_OPEN = ['write', 'sync', 'datasync', 'truncate']

const isText = (value: unknown): value is string => typeof value === 'string'
const {readFileSync, writeFileSync} = fs

/** Writes half of what a failing write or copy was given, as a real disk does. */
function leaveHalf({name, args, go}: FileOperation): unknown {
  const [first, second] = args
  const at = args.findIndex((one) => Buffer.isBuffer(one))
  // A write to an open file: its bytes, their start, their number.
  if (at !== -1) return go(args.with(at + 2, Math.floor(Number(args[at + 2]) / 2)))
  if (!isText(first) || !isText(second)) return undefined
  const whole = name === 'copyFile' ? readFileSync(first) : Buffer.from(second)
  const half = whole.subarray(0, whole.length / 2)
  if (name === 'copyFile') return writeFileSync(second, half)
  return name === 'writeFile' ? writeFileSync(first, half) : undefined
}

/**
 * Replaces the functions that change files in this process. DuckDB and SQLite write natively and bypass this:
 * test/cli/storage.test.ts tests full disks for them.
 * @returns a function that runs something while a case's operation fails, and returns how it failed, if it did, and the number of
 *   operations
 */
async function installFailingFiles() {
  let armed: Case | undefined
  let calls = 0
  await interceptFiles(CHANGING.split(' '), CHANGING_OPEN, (operation) => {
    const {name, args, go, isSync} = operation
    if (name === 'open' && ['r', undefined].includes(args[1] as string | undefined)) return go()
    calls += 1
    if (!armed || calls < armed.nth || (calls > armed.nth && !armed.isForEver)) return go()
    const {code} = armed
    const target = isText(args[0]) ? ` '${args[0]}'` : ''
    const error = Object.assign(new Error(`${code}: ${DISK[code].words}, ${name}${target}`), {code})
    const left = leaveHalf(operation)
    if (isSync) throw error
    return Promise.resolve(left).then(() => Promise.reject(error))
  })
  return async (one: Case, run: () => Promise<void>) => {
    armed = one
    calls = 0
    const failure = await run().then(() => undefined, explainError)
    armed = undefined
    return {failure, operations: calls}
  }
}

/**
 * Makes the nth file operation of a sync and its exports fail, for every n, with EIO and ENOSPC, once and permanently, in a new
 * folder and in a filled one. The run ends with a documented code and a clear message, nothing under a final name is torn, the
 * warehouse is sound, and the next run reaches the same result as an undisturbed one. Replaces functions of `node:fs` in this
 * process.
 */
export async function proveNthFile({
  tables = 'all',
  ...request
}: ProofRequest & {tables?: string}): Promise<Proved> {
  const runFailing = await installFailingFiles()
  await using lab = await createLab({tables})
  const {store} = lab.service
  store.insert(someDeals(60))
  await lab.sync(DAY_1)
  store.insert([aDeal(61)])
  store.update('deal_000003', {loan_amount_cents: 400_000_01n})
  store.remove('deal_000007')
  const runDay = async (folder: DataFolder) => {
    const config = {...lab.config, dataDir: folder.root, pageSize: 20}
    const world = createQuickWorld({now: DAY_2, tables})
    await syncDeals(config, {}, world)
    await exportRelease(config, {profiles: ['csv', 'parquet']}, world)
  }
  const makeFolder = (isNew: boolean, name: string) =>
    isNew ? dataFolderAt(`${lab.folder.root}-${name}`) : lab.copyFolder(name)

  const cases: Case[] = []
  const expected = new Map<boolean, unknown>()
  for (const isNew of [true, false]) {
    const folder = makeFolder(isNew, 'counted')
    const none: Case = {isNew, nth: Number.POSITIVE_INFINITY, code: 'EIO', isForEver: false}
    const {failure, operations} = await runFailing(none, () => runDay(folder))
    if (failure) throw failure
    expected.set(isNew, await readPortfolio(folder))
    for (let nth = 1; nth <= operations; nth += 1)
      for (const code of ['EIO', 'ENOSPC'] as const)
        for (const isForEver of [false, true]) cases.push({isNew, nth, code, isForEver})
  }
  return await proveCases('nth-file', request, cases, async (one, {run, add}) => {
    const folder = makeFolder(one.isNew, `case-${run}`)
    const {failure} = await runFailing(one, () => runDay(folder))
    assert(failure, 'the run continued as if nothing had failed')
    const {code, exitCode, kept, next, message} = failure
    assert.deepEqual([code, exitCode], [DISK[one.code].code, 1], message)
    assert(kept && next, message)
    await requireWholeFiles(folder)
    if (existsSync(folder.warehouse)) await requireSoundFolder(folder)
    await runDay(folder)
    await requireSoundFolder(folder)
    assert.deepEqual(await readPortfolio(folder), expected.get(one.isNew))
    rmSync(folder.root, {recursive: true})
    add('cases')
    add(`exit ${exitCode}`)
  })
}
