import {existsSync, mkdtempDisposableSync, rmSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {addDays} from '../../../src/core/clock.ts'
import {writeMapping} from './books.ts'
import {lose, recover, saveCopy} from './lose.ts'
import {requireRelease, requireTables, sweep, turnPeriod} from './office.ts'
import {startSource} from './source.ts'
import {ACCOUNTS, command, type Stage, setStage, succeed} from './stage.ts'
import {type Event, Finding, SHIPPED_STATUSES, type Story, type Sync} from './story.ts'
import {listTables} from './tables.ts'
import {visitSource} from './visit.ts'

/** Plays a story to its end; `ears` are told of it. @throws Finding at the first violation */
export async function play(story: Story, ears: Partial<Pick<Stage, 'note' | 'tell'>> = {}): Promise<void> {
  using folder = mkdtempDisposableSync(join(tmpdir(), 'loantape-world-'))
  await using source = await startSource()
  const stage: Stage = {...setStage(story, source, folder.path), ...ears}
  for (const event of story.events) {
    if (['recover', 'replay'].includes(event.do)) await requireRebuilt(stage)
    await take(stage, event)
  }
  await requireWhole(stage)
  await (stage.isOfTapes ? requireRebuilt(stage) : requireTapes(stage))
}

const LATER = '2027-12-31T00:00:00Z'

async function requireWhole(stage: Stage): Promise<void> {
  const {code, stdout, stderr} = await command(stage, ['build', '--compare'], LATER)
  if (stderr.includes('BUILD_DIFFERS'))
    throw new Finding(`build --compare: expected no difference, seen ${stderr}`)
  if (code === 0 && stdout.includes('Every table equals that of a whole build'))
    stage.note('compared with a whole build')
}

async function requireTapes(stage: Stage): Promise<void> {
  if (!stage.areTapesWhole || !existsSync(join(stage.data, 'tape'))) return
  await succeed(stage, ['verify'], LATER)
  stage.note('tapes verified')
}

async function requireRebuilt(stage: Stage): Promise<void> {
  if (!stage.isOfTapes || !existsSync(join(stage.data, 'tape'))) return
  const {code, stdout, stderr} = await command(stage, ['verify', '--rebuild'], LATER)
  if (code !== 0 || !stdout.includes('The warehouse matches them.'))
    throw new Finding(`rebuild: expected no difference, seen ${stdout}${stderr}`)
  stage.note('rebuilt and compared')
}

async function take(stage: Stage, event: Event): Promise<void> {
  stage.note(event.do)
  stage.tell(`# ${JSON.stringify(event)}`)
  switch (event.do) {
    case 'put':
    case 'set':
    case 'remove':
      return stage.source.change(event)
    case 'sync':
      return await sync(stage, event)
    case 'sweep':
      return await sweep(stage, event)
    case 'replay':
      return await replay(stage, event)
    case 'look back':
      return await lookBack(stage, event)
    case 'close':
    case 'reopen':
      return await turnPeriod(stage, event)
    case 'map':
      writeFileSync(join(stage.root, ACCOUNTS), writeMapping(event.receivable, stage.story.booksEnded))
      if (event.isMoved && stage.truth.walks.length > 0) await command(stage, ['period', 'remap'], event.at)
      return
    case 'seed':
      return writeSeed(stage, event)
    case 'save':
      return saveCopy(stage, event)
    case 'recover':
      return await recover(stage, event)
    case 'lose':
      return await lose(stage, event)
  }
}

/** Runs a sync. A guard's refusal is accepted as its message says, unless the source lied. */
async function sync(stage: Stage, event: Sync): Promise<void> {
  const accept = [...(event.accept ?? [])]
  for (;;) {
    const error = await visitSource(stage, {...event, accept})
    if (error === '') await requireRelease(stage)
    if (!error?.startsWith('GUARD_') || event.faults) return
    accept.push(error.slice('GUARD_'.length).toLowerCase())
  }
}

async function replay(stage: Stage, {at}: Extract<Event, {do: 'replay'}>): Promise<void> {
  const {truth, data, note} = stage
  if (!existsSync(join(data, 'warehouse.duckdb')) || truth.hasUnread() || !stage.areTapesWhole) return
  stage.isOfTapes = false
  stage.isMended = true
  // After everything that is stored, by a run at that instant or under a clock that was ahead.
  const stored = truth.walks.map(({settledAt}) => settledAt)
  const later = new Date(Math.max(Date.parse(at), ...stored) + 60_000).toISOString()
  await succeed(stage, ['quarantine', 'replay'], later, {isMended: true})
  if (truth.replay() === 0) return
  note('replayed')
  await requireRelease(stage)
}

async function lookBack(stage: Stage, {days, at}: Extract<Event, {do: 'look back'}>): Promise<void> {
  const {truth, root, note} = stage
  const [first, last] = [truth.walks[0]?.on ?? '', truth.walks.at(-1)?.on ?? '']
  const day = last && addDays(last, -days)
  if (!last || day < first) return
  const out = join(root, 'past.duckdb')
  await succeed(stage, ['build', '--as-of', day, '--out', out], at)
  await requireTables(out, listTables(truth, day, stage.story.booksEnded))
  rmSync(out)
  note('past days compared')
}

function writeSeed(
  {root, truth: {reference}}: Stage,
  {fundedOn, statuses}: Extract<Event, {do: 'seed'}>,
): void {
  const write = (name: string, ...rows: (string | number | undefined)[][]) =>
    writeFileSync(join(root, 'sql/seeds', `${name}.csv`), rows.map((row) => `${row.join(',')}\n`).join(''))
  if (fundedOn) {
    reference.fundedOn = fundedOn
    write('funded_on', ['deal_id', 'funded_on:date'], ...Object.entries(fundedOn))
  }
  if (!statuses) return
  // A lender who says nothing about endings leaves out the column.
  const width = Object.values(statuses).some((row) => row.length === 3) ? 3 : 2
  const rows = Object.entries({...SHIPPED_STATUSES, ...statuses}).map(
    ([status, row]) => [status, row.slice(0, width) as typeof row] as const,
  )
  reference.statuses = Object.fromEntries(rows)
  const columns = ['status', 'class', 'sort_order:bigint', 'ending'].slice(0, width + 1)
  write('status', columns, ...rows.map(([status, row]) => [status, ...row, ''].slice(0, width + 1)))
}
