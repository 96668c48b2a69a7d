import {type Ended, type Reached, runThere} from './command.ts'
import {Finding} from './finding.ts'
import {listExpected, listRefusals} from './guards.ts'
import type {Answer} from './source.ts'
import {command, type Stage} from './stage.ts'
import type {Sync} from './story.ts'
import type {Plan} from './truth.ts'

class Killed extends Error {}

/** A run at the source that has not begun. */
const createProgress = () => ({
  plan: undefined as Plan | undefined,
  isApplied: false,
  hasOwnPages: false,
  isStepped: false,
  /** Guards that should have refused what was applied. */
  refusals: [] as string[],
  /** A request the source must never get. */
  wrong: undefined as Finding | undefined,
})

/** A run in progress. */
interface Run {
  stage: Stage
  event: Sync
  progress: ReturnType<typeof createProgress>
}

/**
 * Runs a sync as the story says and tells the truth its outcome; returns its error code, empty on success, undefined if killed.
 *
 * @param allowed further codes that it may end with
 */
export async function visitSource(
  stage: Stage,
  event: Sync,
  allowed: readonly string[] = [],
): Promise<string | undefined> {
  const {truth, listener} = stage
  const {accept = []} = event
  const args = ['sync', ...accept.flatMap((word) => ['--accept', word])]
  const walks = truth.walks.length
  const before = {
    startedAt: truth.walks.at(-1)?.startedAt ?? 0,
    endedAt: Math.max(0, ...truth.walks.map(({endedAt}) => endedAt)),
  }
  const run = {stage, event, progress: createProgress()}
  const needsProcess = event.kill?.isReal === true || event.diskKib !== undefined
  const {ended, isKilled} = await (needsProcess ? runAsProcess : runInProcess)(run, args)
  const {progress} = run
  if (!progress.hasOwnPages && !progress.isApplied) truth.forgetOwnPages()
  listener.note(
    isKilled ? `killed at ${event.kill?.step}` : `exit ${ended.code}${ended.error && ` ${ended.error}`}`,
  )
  // A refused walk is dropped.
  if (ended.error.startsWith('GUARD_') || ended.error === 'SOURCE_QUARANTINE') truth.settle('refused')
  const expected = listExpected({event, before, ...progress})
  if (ended.error === 'CLOCK_STEPPED' && ended.code === 6) truth.settle('abandoned')
  if (progress.wrong) throw progress.wrong
  if (progress.refusals.length > 0)
    throw new Finding(`guard: ${progress.refusals.join('; ')}, and the walk was applied`)
  if (isKilled) return undefined
  if (![...expected, ...allowed].includes(ended.error)) {
    const words = expected.map((code) => code || 'success').join(' or ')
    throw new Finding(
      `run: expected ${words}, seen ${ended.error || 'success'}. ${ended.stderr} ${show(progress.plan)}`,
    )
  }
  if (ended.code === 0 && truth.walks.length === walks) throw new Finding('run: succeeded without a walk')
  return ended.error
}

/** Records an answer of the source. */
function hear({stage, progress}: Run, answer: Answer): void {
  try {
    stage.truth.hear(answer)
  } catch (error) {
    if (!(error instanceof Finding)) throw error
    progress.wrong ??= error
  }
}

function show(plan: Plan | undefined): string {
  return JSON.stringify(plan, (_, value) => (typeof value === 'bigint' ? String(value) : value))
}

/** Records that a run reached a step. */
function reach({stage, event, progress}: Run, step: string, now: number): void {
  const {truth} = stage
  if (step === 'details stored') progress.hasOwnPages = true
  if (step === 'changes planned') {
    progress.plan = truth.plan()
    progress.isStepped = truth.isStepped(now)
  }
  if (step === 'changes applied') {
    progress.isApplied = true
    if (progress.isStepped) progress.refusals.push('CLOCK_STEPPED expected')
    const refusals = listRefusals(progress.plan, event.accept)
    if (refusals.length > 0)
      progress.refusals.push(`${refusals.join(' or ')} expected of ${show(progress.plan)}`)
    progress.plan = undefined
    truth.settle('applied')
  }
}

interface Visited {
  ended: Ended
  isKilled: boolean
}

async function runInProcess(run: Run, args: string[]): Promise<Visited> {
  const {stage, event, progress} = run
  const {truth, source} = stage
  const {at, faults = [], ahead, kill} = event
  let [now, kills] = [Date.parse(at), 0]
  const stepAhead = (page: number) => {
    if (page === ahead?.page) now += ahead.hours * 3_600_000
    if (page - 1 === ahead?.page && !ahead.forGood) now -= ahead.hours * 3_600_000
  }
  const clock = {
    now: () => now,
    afterPage(page: number) {
      now += 1000
      stepAhead(page + 1)
    },
  }
  stepAhead(1)
  truth.beginRun(now)
  source.onAnswer = (answer) => hear(run, answer)
  source.begin(faults, clock)
  if (event.secondAt !== undefined) {
    source.meanwhile = async (page) => {
      if (page !== event.secondAt) return
      const {error} = await runThere(['sync'], {env: stage.env, at})
      if (error !== 'RUN_IN_PROGRESS')
        progress.wrong ??= new Finding(`lock: a second run ended with '${error}'`)
    }
  }
  const onStep = (step: string) => {
    reach(run, step, now)
    if (step !== kill?.step) return
    kills += 1
    if (kills === kill.nth) throw new Killed(step)
  }
  // A page is answered only once another process has ended, however long that takes.
  const isPatient = event.secondAt !== undefined && faults.every(({is}) => is !== 'silent')
  const patience = isPatient ? {requestTimeoutSeconds: 600} : {}
  const ended = await command(stage, args, at, {clock, onStep, ...patience})
  source.meanwhile = async () => undefined
  if (progress.plan === undefined) progress.isStepped = truth.isStepped(now)
  return {ended, isKilled: kill !== undefined && kills >= kill.nth}
}

/** A separate process has a fixed clock; its steps and answers are put in order afterwards. */
async function runAsProcess(run: Run, args: string[]): Promise<Visited> {
  const {truth, source, env, listener} = run.stage
  const {at, faults = [], kill, diskKib} = run.event
  const now = Date.parse(at)
  truth.beginRun(now)
  const heard: {at: number; answer: Answer}[] = []
  source.onAnswer = (answer) => void heard.push({at: performance.timeOrigin + performance.now(), answer})
  source.begin(faults, {now: () => now, afterPage: () => undefined})
  listener.tell(`LOANTAPE_NOW=${at} loantape ${args.join(' ')}   # a process of its own`)
  const {reached, isKilled, ...ended} = await runThere(args, {env, at}, {kill, diskKib})
  const happened: (Reached | (typeof heard)[number])[] = [...reached, ...heard].sort((a, b) => a.at - b.at)
  for (const one of happened) {
    if ('answer' in one) hear(run, one.answer)
    else reach(run, one.step, now)
  }
  return {ended, isKilled}
}
