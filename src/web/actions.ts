import type {FastifyInstance} from 'fastify'
import {z} from 'zod'
import {ABOUT, LONGEST_NOTE, noteText, writeNote} from '../accounting/notes.ts'
import {isCalendarDate, parseInstant, sleepUntilStopped} from '../core/clock.ts'
import {codeOf, explainError, messageOf} from '../core/errors.ts'
import {carryOutCommand} from '../core/process.ts'
import type {World} from '../core/types.ts'
import {bringUpToDate} from '../record/bring-up-to-date.ts'
import {hasPendingRun, isoOf, recordSlot} from '../schedule/job-runs.ts'
import {formatLocal} from '../schedule/slots.ts'
import {findLastRun} from '../store/runs.ts'
import type {StateDb} from '../store/state-db.ts'
import {ACCEPTABLE} from '../sync/guard.ts'
import {wordChecks} from './figures.ts'
import {findWayBack, formOf, refuse} from './http-server.ts'
import {viewState} from './pages.ts'
import type {Overview, Page, WebTools} from './view.ts'

const why = z.string().trim().max(500).default('')

const askedSchema = z.discriminatedUnion('do', [
  z.object({do: z.literal('run'), job: z.string()}),
  z.object({do: z.literal('replay')}),
  z.object({do: z.literal('accept'), what: z.enum(ACCEPTABLE), why}),
  z.object({do: z.literal('close'), period: z.string().regex(/^\d{4}-\d\d$/), why}),
  /** A `note` without text withdraws one. */
  z.object({do: z.literal('note'), about: z.enum(ABOUT), subject: z.string(), note: noteText.optional()}),
  z.object({
    do: z.literal('build'),
    as_of: z.string().refine(isCalendarDate),
    known_at: z
      .string()
      .default('')
      .refine((text) => text === '' || parseInstant(text) !== null),
  }),
])
type Asked = z.output<typeof askedSchema>

function wordsOf(asked: Asked): string[] {
  const option = (name: string, value: string) => (value === '' ? [] : [`--${name}=${value}`])
  if (asked.do === 'run') return ['run', asked.job]
  if (asked.do === 'replay') return ['quarantine', 'replay']
  if (asked.do === 'accept') return ['sync', '--accept', asked.what, ...option('why', asked.why)]
  if (asked.do === 'close') return ['period', 'close', asked.period, ...option('why', asked.why)]
  if (asked.do === 'build') return ['build', '--as-of', asked.as_of, ...option('known-at', asked.known_at)]
  return asked.note === undefined
    ? ['note', 'withdraw', asked.subject]
    : ['note', 'add', `--${asked.about}=${asked.subject}`, `--text=${asked.note}`]
}

/** An answer waits this long for the action, so that it usually shows the result. */
const WAITED_MS = 5_000

const AGAIN_MS = 1_000

/**
 * Operators act through `POST /actions`. Each action is recorded in the state database. A job run is queued for the scheduler and
 * a note is written at once; anything else runs as a command in its own process, one at a time. Disposing the result stops a
 * running command and waits for it.
 */
export function addActions(
  server: FastifyInstance,
  {config, stateDb, listJobs, env}: WebTools,
  world: World,
): AsyncDisposable {
  const {realClock, log} = world
  const closing = new AbortController()
  const signal = AbortSignal.any([world.signal, closing.signal])
  let underWay: Promise<void> | undefined

  function findObstacle(asked: Asked): string | undefined {
    if (asked.do === 'run') {
      if (!listJobs().some(({name, enabled}) => enabled && name === asked.job))
        return `no job '${asked.job}' is scheduled here`
      return hasPendingRun(stateDb, asked.job) ? `a run of ${asked.job} waits or goes on already` : undefined
    }
    if (asked.do === 'note') return undefined
    if (underWay) return 'something else that was asked for goes on: wait for its end'
    if (asked.do === 'accept' && findHeldBack(stateDb)?.what !== asked.what)
      return `the last walk was not refused for '${asked.what}'`
    return undefined
  }

  /** While the state database cannot be written, pages show the action as going on. */
  async function end(action_id: number, exit_code: number | null, words: string): Promise<void> {
    const row = {ended_at: isoOf(realClock.now()), exit_code, words}
    for (let isTold = false; ; isTold = true)
      try {
        return void stateDb.transaction(() => stateDb.update('page_action', {action_id}, row), 0)
      } catch (error) {
        const why = {code: codeOf(error), reason: messageOf(error)}
        if (!isTold) log.error(why, 'what came of an action is not noted yet')
        if (signal.aborted) return
        await sleepUntilStopped(realClock, AGAIN_MS, signal)
      }
  }

  async function carryOut(actionId: number, words: readonly string[]): Promise<void> {
    const ended = await carryOutCommand([...words, '--data', config.dataDir], {env, signal}).catch(
      (error: unknown) => {
        const {exitCode, message} = explainError(error)
        return {exitCode, words: message}
      },
    )
    await end(actionId, ended.exitCode, ended.words)
    underWay = undefined
  }

  stateDb.run(
    `update page_action set ended_at = ?, words = 'The server ended before it; what it did stands among the runs.'
     where ended_at is null`,
    [isoOf(realClock.now())],
  )
  server.post('/actions', async (request, reply) => {
    const form = Object.fromEntries(formOf(request))
    const parsed = askedSchema.safeParse(form)
    const kept = form.note && `Your text: ${form.note}`
    const notDone = (status: number, why: string) => refuse(reply, status, `Not done: ${why}.`, kept)
    const expected = kept
      ? `1 to ${LONGEST_NOTE} characters, none of them a control character`
      : 'a form of this server'
    if (!parsed.success) return await notDone(400, `expected ${expected}`)
    const obstacle = findObstacle(parsed.data)
    if (obstacle !== undefined) return await notDone(409, obstacle)
    const words = wordsOf(parsed.data)
    const now = realClock.now()
    const {who} = request.caller
    const why = 'why' in parsed.data ? parsed.data.why : null
    // Every page shows the command while it runs, and some viewers may not read the reason.
    const command = ['loantape', ...words.filter((word) => !word.startsWith('--why='))].join(' ')
    const begun = {who, command, why, began_at: isoOf(now)}
    if (parsed.data.do === 'run') {
      const reason = 'asked for on the page'
      const slot = {job: parsed.data.job, instant: now, state: 'queued', reason} as const
      stateDb.transaction(() => {
        noteDone(stateDb, {who, command, why, words: 'Queued.'}, now)
        recordSlot(stateDb, slot, now)
      })
      return await reply.redirect('/runs#what-people-did', 303)
    }
    const actionId = Number(stateDb.insert('page_action', begun).lastInsertRowid)
    if (parsed.data.do === 'note') {
      const {about, subject, note: text = null} = parsed.data
      try {
        await bringUpToDate(config, world)
        const {note_no} = writeNote(config, {about, subject, text}, {...world, who})
        void end(actionId, 0, `Noted: ${note_no}.`)
      } catch (error) {
        const {exitCode, message} = explainError(error)
        void end(actionId, exitCode, message)
        return await refuse(reply, 409, message, kept)
      }
      return await reply.redirect(`${findWayBack(request)}#notes`, 303)
    }
    underWay = carryOut(actionId, [...words, '--who', who])
    await Promise.race([underWay, sleepUntilStopped(realClock, WAITED_MS, signal)])
    return await reply.redirect('/runs#what-people-did', 303)
  })
  return {
    async [Symbol.asyncDispose]() {
      closing.abort()
      await underWay
    },
  }
}

/** Records what is done at once. `now` is ms since the epoch. */
export function noteDone(
  stateDb: StateDb,
  action: {who: string; command: string; words: string; why?: string | null},
  now: number,
): void {
  const at = isoOf(now)
  stateDb.insert('page_action', {...action, began_at: at, ended_at: at, exit_code: 0})
}

function findHeldBack(stateDb: StateDb) {
  const run = findLastRun(stateDb, 'sync')
  const what = ACCEPTABLE.find((one) => run?.error_code === `GUARD_${one.toUpperCase()}`)
  return what && {what, words: run?.error ?? ''}
}

export async function viewRuns(
  {now, alarms, holder, release, next}: Overview,
  {stateDb, config}: WebTools,
  mayAct: boolean,
): Promise<Page | undefined> {
  return await viewState('state/runs', {
    stateDb,
    mayAct,
    timeZone: config.timeZone,
    params: {
      now: isoOf(now),
      now_ms: now,
      alarms,
      running: holder && `${holder.command}, ${holder.progress}`,
      held_back: findHeldBack(stateDb),
      next: next.map(({job: {name, steps, timeZone}, slot}) => ({
        job: name,
        slot,
        due: isoOf(slot),
        in_its_time_zone: `${formatLocal(slot, timeZone)} ${timeZone}`,
        steps: steps.map((step) => step.do).join(', '),
      })),
      may_act: mayAct ? 1 : undefined,
      takes_webhooks: config.webhookSecret && 1,
      ...(release && {...release, checks: wordChecks(release.checks)}),
    },
  })
}
