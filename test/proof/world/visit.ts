import {type Reached, runThere} from '../separate-run.ts'
import type {Answer} from './source.ts'
import {command, type Stage} from './stage.ts'
import {Finding, type Sync} from './story.ts'
import type {Plan} from './truth.ts'

class Killed extends Error {}

function followRun({truth}: Stage, {accept}: Sync) {
  const run = {
    plan: undefined as Plan | undefined,
    isApplied: false,
    hasOwnPages: false,
    isStepped: false,
    /** Refusals that were due for walks that were applied. */
    refusals: [] as string[],
    /** The violation by a request that the source must never get. */
    wrong: undefined as Finding | undefined,
    hear(answer: Answer) {
      try {
        truth.hear(answer)
      } catch (error) {
        if (!(error instanceof Finding)) throw error
        run.wrong ??= error
      }
    },
    reach(step: string, now: number) {
      if (step === 'details stored') run.hasOwnPages = true
      if (step === 'changes planned') {
        run.plan = truth.plan()
        run.isStepped = truth.isStepped(now)
      }
      // From here on the walk counts: the next run settles it from its tape.
      if (step !== 'outcome written' || !run.plan) return
      run.isApplied = true
      if (run.isStepped) run.refusals.push('CLOCK_STEPPED expected')
      const refusals = listRefusals(run.plan, accept)
      if (refusals.length > 0) run.refusals.push(`${refusals.join(' or ')} expected of ${show(run.plan)}`)
      run.plan = undefined
      truth.settle('applied', now)
    },
  }
  return run
}
type Run = ReturnType<typeof followRun>

const show = (plan: Plan | undefined): string =>
  JSON.stringify(plan, (_, value) => (typeof value === 'bigint' ? String(value) : value))

/**
 * Runs a sync as the story says and tells the truth its outcome.
 * @param allowed further codes that it may end with
 * @returns its error code, empty on success, undefined if killed
 */
export async function visitSource(
  stage: Stage,
  event: Sync,
  allowed: readonly string[] = [],
): Promise<string | undefined> {
  const {truth, note} = stage
  const {accept = []} = event
  const args = ['sync', ...accept.flatMap((word) => ['--accept', word])]
  const walks = truth.walks.length
  const before = Math.max(0, ...truth.walks.map(({settledAt}) => settledAt))
  const run = followRun(stage, event)
  const needsProcess = event.kill?.isReal === true || event.diskKib !== undefined
  const ended = await (needsProcess ? runAsProcess : runInProcess)(stage, event, run, args)
  const {isKilled} = ended
  if (!run.hasOwnPages && !run.isApplied) truth.forgetOwnPages()
  note(isKilled ? `killed at ${event.kill?.step}` : `exit ${ended.code}${ended.error && ` ${ended.error}`}`)
  // A refused walk leaves only its unreadable records.
  if (ended.error.startsWith('GUARD_') || ended.error === 'SOURCE_QUARANTINE') truth.settle('refused')
  const expected = listExpected(event, before, run)
  if (ended.error === 'CLOCK_STEPPED') truth.settle('abandoned')
  if (run.wrong) throw run.wrong
  if (run.refusals.length > 0)
    throw new Finding(`guard: ${run.refusals.join('; ')}, and the walk was applied`)
  if (isKilled) return undefined
  if (![...expected, ...allowed].includes(ended.error)) {
    const words = expected.map((code) => code || 'success').join(' or ')
    throw new Finding(
      `run: expected ${words}, seen ${ended.error || 'success'}. ${ended.stderr} ${show(run.plan)}`,
    )
  }
  if (ended.code === 0 && truth.walks.length === walks) throw new Finding('run: succeeded without a walk')
  return ended.error
}

async function runInProcess(stage: Stage, event: Sync, run: Run, args: string[]) {
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
  source.onAnswer = run.hear
  source.begin(faults, clock)
  if (event.secondAt !== undefined) {
    source.meanwhile = async (page) => {
      if (page !== event.secondAt) return
      const {error} = await runThere(['sync'], {env: stage.env, at})
      if (error !== 'RUN_IN_PROGRESS') run.wrong ??= new Finding(`lock: a second run ended with '${error}'`)
    }
  }
  const onStep = (step: string) => {
    run.reach(step, now)
    if (step !== kill?.step) return
    kills += 1
    if (kills === kill.nth) throw new Killed(step)
  }
  // The page waits until the other process has ended, however long that takes.
  const isPatient = event.secondAt !== undefined && faults.every(({is}) => is !== 'silent')
  const patience = isPatient ? {requestTimeoutSeconds: 600} : {}
  const ended = await command(stage, args, at, {clock, onStep, ...patience})
  source.meanwhile = async () => undefined
  if (run.plan === undefined) run.isStepped = truth.isStepped(now)
  return {...ended, isKilled: kill !== undefined && kills >= kill.nth}
}

/** Runs a sync in a separate process. Its clock is stopped; its steps and answers are put in order afterwards. */
async function runAsProcess({truth, source, env, tell}: Stage, event: Sync, run: Run, args: string[]) {
  const {at, faults = [], kill, diskKib} = event
  const now = Date.parse(at)
  truth.beginRun(now)
  const heard: {at: number; answer: Answer}[] = []
  source.onAnswer = (answer) => void heard.push({at: performance.timeOrigin + performance.now(), answer})
  source.begin(faults, {now: () => now, afterPage: () => undefined})
  tell(`LOANTAPE_NOW=${at} loantape ${args.join(' ')}   # a process of its own`)
  const {reached, ...ended} = await runThere(args, {env, at}, {kill, diskKib})
  const happened: (Reached | (typeof heard)[number])[] = [...reached, ...heard].sort((a, b) => a.at - b.at)
  for (const one of happened) {
    if ('answer' in one) run.hear(one.answer)
    else run.reach(one.step, now)
  }
  return ended
}

const RETRIES = 2
const SHRINK_PCT = 5
const CHANGE_PCT = 20
/** A clock that goes back by less than this is being corrected. */
const SMALL_STEP_MS = 1000

/**
 * Lists the codes with which a run that was not killed may end; the empty one is success.
 * @param before when the last of the earlier walks was applied, ms since the epoch
 */
function listExpected(event: Sync, before: number, run: Run): string[] {
  const {ahead} = event
  const now = Date.parse(event.at) + (ahead?.page === 1 ? ahead.hours * 3_600_000 : 0)
  const ofDisk = event.diskKib === undefined ? [] : ['DISK_FULL', 'DISK_FAULT']
  if (now + SMALL_STEP_MS <= before) return ['CLOCK_BACKWARDS', ...ofDisk]
  const ends = listEnds(event, run)
  // The list may fail before the clock goes back.
  if (run.isStepped)
    return ['CLOCK_STEPPED', ...ofDisk, ...(run.plan ? [] : ends.filter((code) => code !== ''))]
  return ofDisk.length === 0 ? ends : [...new Set([...ends, '', ...ofDisk])]
}

function listEnds(event: Sync, {plan, isApplied}: Run): string[] {
  const {faults = []} = event
  if (!plan) {
    const isBroken = faults.some(({is}) => is === 'bytes')
    const failures = faults.filter((fault) => 'times' in fault && fault.is !== '429')
    const timesOf = (page: number) =>
      failures.reduce((sum, one) => sum + ('times' in one && one.page === page ? one.times : 0), 0)
    const isFailing = failures.some((fault) => 'times' in fault && timesOf(fault.page) > RETRIES)
    const loops = faults.some(({is}) => is === 'stuck' || is === 'endless')
    const codes = [
      ...(isFailing ? ['SOURCE_FAILING', 'SOURCE_UNREACHABLE'] : []),
      ...(loops ? ['SOURCE_CURSOR_LOOP'] : []),
      ...(isBroken ? ['SOURCE_NOT_UTF8'] : []),
    ]
    return codes.length > 0 && !isApplied ? codes : ['', ...codes]
  }
  const refusals = listRefusals(plan, event.accept)
  return refusals.length > 0 ? refusals : ['']
}

function listRefusals(plan: Plan | undefined, accept: readonly string[] = []): string[] {
  if (!plan) return []
  if (plan.quarantined > 3 && plan.quarantined * 20 > plan.records) return ['SOURCE_QUARANTINE']
  return Object.entries(judge(plan))
    .filter(([guard, isRefused]) => isRefused && !accept.includes(guard))
    .map(([guard]) => `GUARD_${guard.toUpperCase()}`)
}

function judge(plan: Plan): Record<'shrink' | 'growth' | 'change', boolean> {
  const exceeds = (count: number, ignored: number, pct: number, whole = plan.known) =>
    count > ignored && count * 100 > whole * pct
  const {status = 0, ...fields} = plan.fields
  return {
    shrink: exceeds(plan.newlyAbsent, 3, SHRINK_PCT) || (plan.listed === 0 && plan.absent > 3),
    growth:
      plan.known > 0 &&
      (exceeds(plan.present - plan.known, 10, 100) ||
        (plan.known > 10 && plan.amountAfter > 2n * plan.amountBefore)),
    change:
      [plan.amounts, plan.left, ...Object.values(fields)].some((count) => exceeds(count, 3, CHANGE_PCT)) ||
      exceeds(status, 10, CHANGE_PCT) ||
      exceeds(plan.entered, 10, 50, plan.pipeline),
  }
}
