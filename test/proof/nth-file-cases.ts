/** A separate process with failing file operations: proves the cases requested by nth-file.ts. */
import assert from 'node:assert/strict'
import {existsSync, rmSync} from 'node:fs'
import {explainError, type LoantapeError} from '../../src/core/errors.ts'
import {exportRelease} from '../../src/export.ts'
import {syncDeals} from '../../src/pipeline.ts'
import {type DataFolder, dataFolderAt} from '../../src/store/data-folder.ts'
import {aDeal, createLab, type Lab, someDeals} from '../support/lab.ts'
import {type FailingFiles, type FileErrorCode, installFailingFiles} from './failing-files.ts'
import {createTally, type ProofRequest, type Proved, runAll, shuffle} from './proof.ts'
import {createQuickWorld} from './quick-world.ts'
import {readPortfolio, requireSoundWarehouse, requireWholeFiles} from './soundness.ts'

const DAY_1 = '2026-02-02T23:30:00-05:00'
const DAY_2 = '2026-02-03T23:30:00-05:00'
/** The documented codes for a failing disk: during the run, and if the folder itself is refused. */
const CODES: Record<FileErrorCode, string> = {EIO: 'DISK_FAULT', ENOSPC: 'DISK_FULL'}

/** Which file operation fails, and how, in a new folder or one filled on the day before. */
interface Case {
  isNew: boolean
  nth: number
  code: FileErrorCode
  isForEver: boolean
}

const {tables = 'all', ...request}: ProofRequest & {tables?: string} = JSON.parse(process.argv[2] ?? '{}')

async function runDay(lab: Lab, folder: DataFolder): Promise<void> {
  const config = {...lab.config, dataDir: folder.root, pageSize: 20}
  const world = createQuickWorld({now: DAY_2, tables})
  await syncDeals(config, {}, world)
  await exportRelease(config, {profiles: ['csv', 'parquet']}, world)
}

/** Runs while files fail; returns how the run failed, if it did, and how many operations there were. */
async function runFailing(
  files: FailingFiles,
  one: Case,
  run: () => Promise<void>,
): Promise<{failure: LoantapeError | undefined; operations: number}> {
  files.arm(one.nth, one.code, one.isForEver)
  try {
    await run()
    return {failure: undefined, operations: files.disarm()}
  } catch (error) {
    return {failure: explainError(error), operations: files.disarm()}
  }
}

async function listCases(lab: Lab, files: FailingFiles): Promise<Case[]> {
  const cases: Case[] = []
  for (const isNew of [true, false]) {
    const folder = isNew ? dataFolderAt(`${lab.folder.root}-counted`) : lab.copyFolder('counted')
    const none: Case = {isNew, nth: Number.POSITIVE_INFINITY, code: 'EIO', isForEver: false}
    const {failure, operations} = await runFailing(files, none, () => runDay(lab, folder))
    if (failure) throw failure
    for (let nth = 1; nth <= operations; nth += 1) {
      for (const code of ['EIO', 'ENOSPC'] as const)
        for (const isForEver of [false, true]) cases.push({isNew, nth, code, isForEver})
    }
  }
  return cases
}

function judgeFailure(failure: LoantapeError | undefined, one: Case): void {
  assert(failure, 'the run continued as if nothing had failed')
  const isRefused = failure.code.endsWith('_NOT_WRITABLE')
  assert.equal(failure.exitCode, isRefused ? 2 : 1, failure.message)
  if (isRefused) assert.match(failure.message, new RegExp(`cannot be written \\(${one.code}\\)`))
  else assert.equal(failure.code, CODES[one.code], failure.message)
  assert(failure.kept && failure.next, failure.message)
}

async function proveCases(asked: ProofRequest): Promise<Proved> {
  const tally = createTally()
  const files = await installFailingFiles()
  await using lab = await createLab({tables})
  const {store} = lab.service
  store.insert(someDeals(60))
  await lab.sync(DAY_1)
  store.insert([aDeal(61)])
  store.update('deal_000003', {loanAmountCents: 400_000_01n})
  store.remove('deal_000007')
  const cases = await listCases(lab, files)
  const expected = {
    new: await readPortfolio(dataFolderAt(`${lab.folder.root}-counted`)),
    filled: await readPortfolio(dataFolderAt(lab.folder.root.replace(/data$/, 'counted'))),
  }
  const order = shuffle(cases, asked.seed)
  const runs = Math.min(asked.runs, order.length - (asked.first ?? 0))
  await runAll({name: 'nth-file'}, {...asked, runs}, async (run) => {
    const one = order[run]
    assert(one)
    const {isNew, nth, code, isForEver} = one
    const name = `case-${run}`
    const folder = isNew ? dataFolderAt(`${lab.folder.root}-${name}`) : lab.copyFolder(name)
    const words = `operation ${nth} of a ${isNew ? 'new' : 'filled'} folder: ${code} ${isForEver ? 'for ever' : 'once'}`
    const {failure} = await runFailing(files, one, () => runDay(lab, folder))
    try {
      judgeFailure(failure, one)
      await requireWholeFiles(folder)
      if (existsSync(folder.warehouse)) await requireSoundWarehouse(folder)
      await runDay(lab, folder)
      await requireWholeFiles(folder)
      await requireSoundWarehouse(folder)
      assert.deepEqual(await readPortfolio(folder), isNew ? expected.new : expected.filled)
    } catch (error) {
      throw new Error(`${words}: ${error instanceof Error ? error.message : error}`, {cause: error})
    }
    rmSync(folder.root, {recursive: true})
    tally.add('cases')
    tally.add(`exit ${failure?.exitCode}`)
  })
  return {figures: {...tally.figures, 'of cases': order.length}}
}

const print = (line: object) => process.stdout.write(`${JSON.stringify(line)}\n`)
print(await proveCases({...request, onRun: (run) => print({run})}))
