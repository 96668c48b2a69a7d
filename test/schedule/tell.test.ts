import {once} from 'node:events'
import {type AddressInfo, createServer} from 'node:net'
import {afterEach, beforeEach, expect, test, vi} from 'vitest'
import {z} from 'zod'
import {type Config, parseConfig} from '../../src/core/config.ts'
import {newError} from '../../src/core/errors.ts'
import {listAlarms} from '../../src/schedule/alarms.ts'
import {beginRun, claimRun, endRun, recordSlot} from '../../src/schedule/job-runs.ts'
import {pingDeadMan, tellPeople} from '../../src/schedule/tell.ts'
import {openStateDb, type StateDb} from '../../src/store/state-db.ts'
import {startTestServer} from '../source/test-server.ts'
import {createWorldBy} from '../support/data.ts'
import {startInbox} from '../support/inbox.ts'
import {aManifest} from '../support/releases.ts'
import {useShared} from '../support/set-up.ts'
import {until} from '../support/until.ts'

const HOUR = 3_600_000

let now: number
let stateDb: StateDb
let config: Config

const world = () => createWorldBy(() => now)

const isoNow = () => new Date(now).toISOString()

const watched = (jobs = ['nightly']) => ({config, release: undefined, jobs: jobs.map((name) => ({name}))})

const inbox = await useShared(startInbox())
const {posts, mails} = inbox
beforeEach(() => {
  now = Date.parse('2026-06-01T06:00:00Z')
  stateDb = openStateDb(':memory:')
  for (const messages of [posts, mails]) messages.length = 0
  inbox.status = 200
  inbox.refused = ''
  config = parseConfig(inbox.env, {readFile: () => ''})
})

afterEach(() => stateDb[Symbol.dispose]())

type Look = Parameters<typeof tellPeople>[2]

const tell = (jobs?: string[], found: Partial<ReturnType<Look>> = {}) =>
  tellPeople(stateDb, config, () => ({...watched(jobs), ...found}), world())

/** Runs a job to its end; `fields` say how it ended. */
async function runAndTell(fields: Partial<Parameters<typeof endRun>[2]> = {}): Promise<void> {
  now += HOUR / 2
  endRun(stateDb, beginRun(stateDb, 'nightly', now), {exit_code: 0, ...fields}, now)
  await tell()
}

const failed = {exit_code: 3, error_code: 'CHECKS_FAILED', error: 'A check failed.'}
const shrunk = {
  exit_code: 8,
  error_code: 'GUARD_SHRINK',
  error: 'Walk <w1> would take 20 % of the deals. Nothing was applied. Look, then sync --accept shrink.',
}

test("a failed run is told once by each channel, however often it fails, without markup, with its lender's name, and so is its recovery", async () => {
  await runAndTell()
  expect(posts).toEqual([])
  for (const _ of [1, 2, 3]) await runAndTell(shrunk)
  expect(posts).toEqual([
    expect.stringMatching(
      /^\*Job nightly was stopped by a guard \[GUARD_SHRINK\]\*\nRun 2 of job nightly.*Walk &lt;w1&gt; would take 20 %.*\. Nothing was applied\. Look, then sync --accept shrink\./,
    ),
  ])
  expect(mails).toEqual([expect.stringMatching(/^To: night@example\.com.*Walk <w1>/ms)])
  config = {...config, source: 'acme'}
  await runAndTell(failed)
  expect(posts[1]).toMatch(/^\*acme: .*failed a check \[CHECKS_FAILED\]/)
  expect(mails[1]).toContain('Subject: loantape: acme: Job nightly')
  for (const _ of [1, 2]) await runAndTell()
  expect(posts.slice(2)).toEqual([expect.stringContaining('*acme: Recovered: job nightly is done*')])
  expect(mails[2]).toContain('Subject: loantape: acme: Recovered')
})

test.each([
  [3, 'EXPORT_CELL'],
  [5, 'PUBLISH_AUTH'],
  [6, 'PUBLISH_UNREACHABLE'],
])(
  'exit code %i of a step after the release blames neither source nor walk nor release: %s',
  async (exit_code, error_code) => {
    await runAndTell({exit_code, error_code, error: 'In words.'})
    expect(posts[0]).toContain(error_code)
    expect(posts[0]?.split('\n')[0]).not.toMatch(/source|walk|release/)
  },
)

test('a later failure by hand is reported as the present cause, and a success as its end', async () => {
  const sync = (exitCode: number, errorCode: string | null) => {
    now += HOUR
    const fields = {exit_code: exitCode, error_code: errorCode, error: errorCode && 'In words.'}
    const times = {started_at: isoNow(), ended_at: isoNow()}
    stateDb.insert('run', {run_id: `r${now}`, command: 'sync', pid: 1, ...times, ...fields})
  }
  now += HOUR
  const run = beginRun(stateDb, 'nightly', now)
  sync(5, 'SOURCE_UNAUTHORIZED')
  endRun(stateDb, run, {exit_code: 5, error_code: 'SOURCE_UNAUTHORIZED', error: 'No.'}, now)
  const alarms = () => listAlarms(stateDb, watched(), now)
  await tell()
  expect(alarms()).toMatchObject([{state: 'SOURCE_UNAUTHORIZED', since: isoNow()}])
  sync(4, 'RUN_IN_PROGRESS')
  sync(6, 'INTERRUPTED')
  await tell()
  expect(posts).toHaveLength(1)
  sync(8, 'GUARD_SHRINK')
  const since = isoNow()
  now += HOUR
  await tell()
  expect(posts[1]).toContain('*Job nightly was stopped by a guard [GUARD_SHRINK]*')
  sync(8, 'GUARD_SHRINK')
  expect(alarms()).toMatchObject([{state: 'GUARD_SHRINK', since}])
  sync(0, null)
  expect(alarms()).toEqual([])
  await tell()
  expect(posts[2]).toContain('*Recovered: sync of job nightly is done*')
  expect(posts[2]).toContain(`GUARD_SHRINK had held since ${since}.`)
})

test('a skipped slot, a run that waited, was stopped or found it was not due, and a removed job send no message', async () => {
  recordSlot(stateDb, {job: 'nightly', instant: now, state: 'skipped', reason: 'missed'}, now)
  await tell()
  expect(posts).toEqual([])
  await runAndTell(shrunk)
  await runAndTell({exit_code: 4, error_code: 'RUN_IN_PROGRESS', error: 'Another run.'})
  await runAndTell({exit_code: 6, error_code: 'INTERRUPTED', error: 'Asked to stop.'})
  await runAndTell({summary: JSON.stringify({job: 'nightly', outcome: 'not_due', steps: []})})
  expect(posts).toHaveLength(1)
  await tell(['other'])
  expect(posts).toHaveLength(1)
  expect(listAlarms(stateDb, watched(), now)).toHaveLength(1)
  expect(listAlarms(stateDb, watched(['other']), now)).toEqual([])
  await runAndTell()
  expect(posts).toHaveLength(1)
})

test('alarms of a job that only another server has are not forgotten, nor told again by that one', async () => {
  const seen = {watched_from: isoNow(), seen_until: isoNow(), seen_before: null}
  stateDb.insert('job_watch', {job: 'nightly', schedule: '0 0 * * *', time_zone: 'UTC', ...seen})
  now -= HOUR / 2
  await runAndTell(shrunk)
  for (const jobs of [['other'], ['nightly'], ['other'], ['nightly']]) await tell(jobs)
  expect(posts).toHaveLength(1)
})

test('an alarm of a file that is right again, though its job has not run, is told to be over; one out of sight stays', async () => {
  const fault = newError('JOB_INVALID', 'Wrong.')
  await tell([], {jobs: [{name: 'weekly', fault}]})
  expect(posts[0]).toContain('*Job weekly is never due: its file is wrong [JOB_INVALID]*')
  await tell(['weekly'])
  expect(posts[1]).toContain('*Recovered: job weekly')
  const limits = {name: 'limit_is_kept', severity: 'warn' as const, failures: 1, samples: ['A'], ids: ['A']}
  const release = aManifest({checks: {passed: 1, warned: 1, results: [limits]}})
  for (const current of [release, undefined, release]) await tell(['weekly'], {release: current})
  expect(posts.slice(2)).toEqual([expect.stringContaining('1 limit is exceeded')])
  await tell(['weekly'], {release: aManifest()})
  expect(posts[3]).toContain('*Recovered: no limit is set*')
})

test('what is told is looked at while no other process can tell, so that nobody is told what is over', async () => {
  const look = vi.fn(() => ({...watched(), isAlone: stateDb.db.isTransaction}))
  await tellPeople(stateDb, config, look, world())
  expect(look.mock.results).toMatchObject([{value: {isAlone: true}}])
})

test('while a failed run is tried again, is locked out or stopped, nothing has recovered until it has', async () => {
  recordSlot(stateDb, {job: 'nightly', instant: now, state: 'queued', reason: null}, now)
  const attempt = async (end: Parameters<typeof endRun>[2]) => {
    now += HOUR
    const run = claimRun(stateDb, now, ['nightly'])
    await tell()
    const [alarm] = listAlarms(stateDb, watched(), now)
    now += HOUR / 2
    if (run) endRun(stateDb, run, {not_before: now, ...end}, now)
    await tell()
    return alarm?.words
  }
  const down = {exit_code: 6, error_code: 'SOURCE_UNREACHABLE', error: 'No answer.'}
  expect(await attempt(down)).toBeUndefined()
  const words = expect.stringMatching(/^Run 1 .*, attempt 1: No answer\.\nIt is being tried again\.$/)
  expect(await attempt({exit_code: 4, error_code: 'RUN_IN_PROGRESS'})).toEqual(words)
  expect(await attempt({exit_code: 6, error_code: 'INTERRUPTED'})).toEqual(words)
  expect(await attempt(down)).toEqual(words)
  expect(posts).toEqual([
    expect.stringMatching(/\[SOURCE_UNREACHABLE\].*\nIt is tried again at 2026-06-01T07:30:00\.000Z\./s),
  ])
  // Meanwhile somebody runs the step by hand.
  const at = isoNow()
  const failed = {command: 'sync', pid: 1, started_at: at, ended_at: at}
  stateDb.run('update job_attempt set started_at = ? where attempt = 4', [at])
  stateDb.insert('run', {run_id: 'a', ...failed, exit_code: 6, error_code: 'SOURCE_UNREACHABLE'})
  stateDb.insert('run', {run_id: 'b', ...failed, exit_code: 0})
  expect(await attempt({exit_code: 0, not_before: null})).toBeUndefined()
  expect(posts.slice(1)).toEqual([expect.stringContaining('*Recovered: sync of job nightly is done*')])
})

test('a slot that was locked out until it was given up is told, with what held the lock', async () => {
  recordSlot(stateDb, {job: 'nightly', instant: now, state: 'queued', reason: null}, now)
  const locked = {exit_code: 4, error_code: 'WAREHOUSE_LOCKED', error: 'Another program has it open.'}
  for (const not_before of [now + HOUR, null]) {
    expect(posts).toEqual([])
    now += HOUR
    const run = claimRun(stateDb, now, ['nightly'])
    endRun(stateDb, run!, {...locked, not_before}, now)
    await tell()
  }
  expect(posts).toEqual([expect.stringMatching(/\[WAREHOUSE_LOCKED\].*Another program has it open/s)])
})

test('a damaged release is told once, and so is its end', async () => {
  const damage = newError('RELEASE_DAMAGED', "File 'x' is missing.")
  for (const found of [{damage}, {damage}, {}, {release: aManifest()}]) await tell([], found)
  expect(posts).toEqual([
    expect.stringMatching(
      /^\*The current release is damaged \[RELEASE_DAMAGED\]\*\nFile 'x' .*`loantape build`/,
    ),
    expect.stringContaining('*Recovered: the current release is whole*'),
  ])
})

test('too long without a successful sync is told, even if there never was one; the oldest alarm stands first', async () => {
  const at = isoNow()
  const seen = {watched_from: at, seen_until: at, seen_before: null}
  stateDb.insert('job_watch', {job: 'nightly', schedule: '0 0 * * *', time_zone: 'UTC', ...seen})
  now += 26 * HOUR
  await tell()
  expect(posts).toEqual([])
  now += HOUR
  await tell()
  await tell()
  expect(posts).toHaveLength(1)
  expect(posts[0]).toContain('No sync has succeeded for 26 hours')
  await runAndTell(shrunk)
  const alarms = listAlarms(stateDb, watched(), now).map(({name, since}) => [name, since])
  expect(alarms).toEqual([
    ['freshness', '2026-06-02T08:00:00.000Z'],
    ['job nightly', isoNow()],
  ])
})

/** Lets a sync succeed after a walk of 2,000 records, and sends what is due. */
function syncWith(walk: object, streams: object[] = []) {
  now += HOUR
  const at = isoNow()
  const told = {quarantined: 0, records: 2000, details: {fetched: 0, failed: 0}}
  const summary = JSON.stringify({walk: {...told, ...walk}, streams})
  const run = {run_id: `run ${now}`, command: 'sync', pid: 1, started_at: at, ended_at: at}
  stateDb.insert('run', {...run, exit_code: 0, outcome: 'released', summary})
  return tell()
}

test('too many quarantined records are told until there are fewer', async () => {
  for (const quarantined of [10, 11, 0]) await syncWith({quarantined})
  expect(posts).toEqual([
    expect.stringContaining('11 of 2,000 records could not be read'),
    expect.stringContaining('Recovered'),
  ])
})

test('own pages of deals that can never be read are told until one is, or nobody asks for any; single ones are not', async () => {
  const read = (fetched: number, failed: number) => syncWith({details: {fetched, failed}})
  await read(1, 40)
  await read(0, 4)
  expect(posts).toEqual([])
  await read(0, 5)
  // A night with few requests says nothing.
  await read(0, 4)
  expect(posts).toEqual([expect.stringContaining('None of the own pages of deals could be read')])
  for (const [fetched, failed] of [
    [9, 0],
    [0, 5],
    [0, 0],
  ] as const)
    await read(fetched, failed)
  const recovered = expect.stringContaining('Recovered')
  expect(posts.slice(1)).toEqual([recovered, expect.stringContaining('None of'), recovered])
})

test('lists of borrowers that cannot be read, or are refused, are told', async () => {
  const list = (fields: object) =>
    syncWith({}, [{stream: 'borrowers', listed: 0, failed: 5, reason: null, ...fields}])
  await list({})
  // A night that had no time for any says nothing.
  await list({failed: 0})
  await list({listed: 9, reason: 'GUARD_SHRINK'})
  await list({listed: 9})
  await list({})
  await syncWith({}, [])
  expect(posts).toEqual([
    expect.stringContaining('None of the lists of borrowers could be read'),
    expect.stringMatching(/Lists of borrowers were refused \[GUARD_SHRINK\].*--accept/s),
    expect.stringContaining('Recovered'),
    expect.stringContaining('None of the lists'),
    expect.stringContaining('Recovered: no lists of borrowers are asked for'),
  ])
})

test('a message that fails is sent again later, to that channel only, and that its alarm is over after it', async () => {
  inbox.status = 500
  await runAndTell(shrunk)
  inbox.status = 200
  await tell()
  expect([posts.length, mails.length]).toEqual([1, 1])
  now += 100_000
  endRun(stateDb, beginRun(stateDb, 'nightly', now), {exit_code: 0}, now)
  await tell()
  for (const _ of [1, 2]) {
    now += 100_000
    await tell()
  }
  expect(posts.slice(1)).toEqual([
    expect.stringContaining('[GUARD_SHRINK]'),
    expect.stringContaining('*Recovered'),
  ])
  expect(mails).toHaveLength(2)
})

test('a message that is refused for what it says holds up those of its alarm for hours only', async () => {
  inbox.status = 500
  await runAndTell(shrunk)
  const [created_at, sent] = [isoNow(), {alarm: 'other', message: '{"title":"","words":""}'}]
  now += 4 * HOUR
  const times = {attempts: 1, next_attempt_at: now, created_at, sent_at: isoNow()}
  stateDb.insert('notice', {channel: 'webhook', ...sent, ...times})
  stateDb.run('update notice set attempts = 6, next_attempt_at = ? where sent_at is null', [now + HOUR])
  inbox.status = 200
  await runAndTell()
  expect(posts.at(-1)).toContain('*Recovered: job nightly is done*')
})

test('a message that fails while the clock is ahead is sent once it is right, and for three days from then', async () => {
  inbox.status = 500
  now += 10 * 24 * HOUR
  await runAndTell(shrunk)
  now -= 10 * 24 * HOUR
  await tell()
  await tell()
  expect(posts).toHaveLength(2)
  now += 2 * 24 * HOUR
  await tell()
  expect(posts).toHaveLength(3)
  now += 24 * HOUR
  inbox.status = 200
  await tell()
  // The first message was given up; what still holds is sent again.
  expect(posts).toHaveLength(4)
  expect(stateDb.column(z.number(), "select count(*) from notice where channel = 'webhook'")).toEqual([2])
})

test('a mail that the server takes for some only is sent again to the others', async () => {
  config = {...config, alarmEmailTo: 'night@example.com, "Desk, Risk" <risk@example.com>'}
  inbox.refused = 'risk@example.com'
  await runAndTell(shrunk)
  expect(stateDb.column(z.string(), 'select error from notice where error is not null')).toEqual([
    "Mail server refused 'risk@example.com': all others have the message. Check the address: it stands in LOANTAPE_ALARM_EMAIL_TO, or in `to` of the job's digest.",
  ])
  for (const wait of [0, HOUR]) {
    expect(mails).toHaveLength(1)
    now += wait
    await tell()
  }
  inbox.refused = ''
  for (const _ of [1, 2]) {
    now += HOUR
    await tell()
  }
  expect(mails.map((mail) => /^To: .*$/m.exec(mail)?.[0])).toEqual([
    expect.stringContaining('night@example.com'),
    'To: risk@example.com',
  ])
  expect(posts).toHaveLength(1)
})

test('a channel is told what is wrong already when it is set up, once, and by no other', async () => {
  const {alarmWebhookUrl: _hook, ...mailOnly} = config
  const {alarmEmailTo: _to, smtpUrl: _url, ...none} = mailOnly
  const all = config
  config = none
  await runAndTell(shrunk)
  config = mailOnly
  await tell()
  expect(mails).toEqual([expect.stringContaining('[GUARD_SHRINK]')])
  const digest = {channel: 'webhook', alarm: 'digest 2026-06-01 {}', message: '{"title":"","words":""}'}
  const times = {created_at: isoNow(), attempts: 1, next_attempt_at: now, sent_at: isoNow()}
  stateDb.insert('notice', {...digest, ...times})
  config = all
  await tell()
  await tell()
  await runAndTell(shrunk)
  expect(posts).toEqual([expect.stringContaining('[GUARD_SHRINK]')])
  expect(mails).toHaveLength(1)
  await runAndTell()
  expect([posts.length, mails.length]).toEqual([2, 2])
})

test('a channel that was off, or got nothing for days, is told what it missed and nothing else, even under an odd clock', async () => {
  const {alarmEmailTo: _to, smtpUrl: _url, ...hookOnly} = config
  const all = config
  await runAndTell(shrunk)
  config = hookOnly
  await runAndTell(failed)
  config = all
  now -= 48 * HOUR
  for (const _ of [1, 2]) await tell()
  expect(mails.map((mail) => /\[(\w+)\]/.exec(mail)?.[1])).toEqual(['GUARD_SHRINK', 'CHECKS_FAILED'])
  config = hookOnly
  now += 49 * HOUR
  await runAndTell()
  config = all
  await tell()
  expect(mails[2]).toContain('Recovered: job nightly is done')
  const known = posts.length
  config = {...all, alarmWebhookUrl: 'http://127.0.0.1:9/'}
  await runAndTell(shrunk)
  now += 73 * HOUR
  config = all
  for (const _ of [1, 2]) await tell()
  expect(posts.slice(known)).toEqual([expect.stringContaining('[GUARD_SHRINK]')])
  expect(mails.filter((mail) => !mail.includes('by webhook'))).toHaveLength(4)
  config = {...all, alarmWebhookUrl: 'http://127.0.0.1:9/'}
  await runAndTell(failed)
  config = all
  now += 73 * HOUR
  await runAndTell()
  expect(posts.at(-1)).toContain('Recovered')
  expect(posts.slice(known)).toHaveLength(2)
})

test('the dead-man check is pinged, and its failure affects nothing else', async () => {
  await pingDeadMan(config, world())
  expect(posts).toEqual(['/alive'])
  inbox.status = 503
  await pingDeadMan(config, world())
  await pingDeadMan({...config, deadManUrl: 'http://127.0.0.1:9/'}, world())
})

test('a receiver is left once it has answered, whatever it goes on to say', async () => {
  let heardOut = 0
  await using talker = await startTestServer((_, response) => {
    let said = 0
    const talking = setInterval(() => {
      response.write('.')
      said += 1
      if (said < 2_000) return
      heardOut += 1
      response.end()
    }, 5)
    response.on('close', () => clearInterval(talking))
  })
  config = {...config, alarmEmailTo: undefined, alarmWebhookUrl: talker.url, deadManUrl: talker.url}
  await runAndTell(shrunk)
  await pingDeadMan(config, world())
  now += HOUR
  await tell()
  expect(talker.requests).toHaveLength(2)
  expect(heardOut).toBe(0)
})

test('a mail server that answers without end holds up neither the webhook nor a stop, after which the mail is sent', async () => {
  const ended = Promise.withResolvers<void>()
  await using dripper = createServer((socket) => {
    socket.on('error', () => undefined).once('close', () => ended.resolve())
    socket.write('220 mail.example.com\r\n')
    let dripped = 0
    const dripping = setInterval(
      () => (dripped++ < 150 ? socket.write('250-HELP\r\n') : socket.destroy()),
      100,
    )
    socket.once('close', () => clearInterval(dripping))
  }).listen(0, '127.0.0.1')
  await once(dripper, 'listening')
  const {smtpUrl} = config
  config = {...config, smtpUrl: `smtp://127.0.0.1:${(dripper.address() as AddressInfo).port}`}
  endRun(stateDb, beginRun(stateDb, 'nightly', now), shrunk, now)
  const stopping = new AbortController()
  const telling = tellPeople(stateDb, config, () => watched(), {...world(), signal: stopping.signal})
  await until(() => posts.length === 1)
  stopping.abort()
  await telling
  await ended.promise
  expect(stateDb.column(z.unknown(), 'select error from notice')).toEqual([null, null])
  config = {...config, smtpUrl}
  now += HOUR
  await tell()
  expect([posts, mails]).toMatchObject([{length: 1}, [expect.stringContaining('GUARD_SHRINK')]])
})

test('a password of the mail server goes to none that offers no TLS, unless it is this machine', async () => {
  const url = new URL(inbox.env.LOANTAPE_SMTP_URL)
  const urlOf = (host: string) => `smtp://night:hush@${host}:${url.port}`
  // Another spelling of the address of this machine.
  config = {...config, alarmWebhookUrl: undefined, smtpUrl: urlOf('127.1')}
  await runAndTell(shrunk)
  expect([inbox.logins, mails]).toEqual([[], []])
  expect(stateDb.column(z.string(), 'select error from notice')).toEqual([expect.stringContaining('TLS')])
  config = {...config, smtpUrl: urlOf('127.0.0.1')}
  now += HOUR
  await tell()
  expect([inbox.logins, mails]).toMatchObject([['night'], [expect.stringContaining('GUARD_SHRINK')]])
})

test('a channel that fails for more than a month has not recovered because its old messages are forgotten', async () => {
  config = {...config, alarmWebhookUrl: 'http://127.0.0.1:9/'}
  await runAndTell(shrunk)
  now += 2 * HOUR
  await runAndTell()
  now += 31 * 24 * HOUR
  for (const end of [shrunk, {}]) await runAndTell(end)
  await tell()
  const titles = mails.map((mail) => /^Subject: loantape: (.*)\r$/m.exec(mail)?.[1])
  expect(titles.filter((title) => title?.includes('by webhook'))).toEqual([
    'Messages by webhook cannot be sent',
  ])
})

test('a message that takes minutes to send is not sent by another process, too', async () => {
  const answers: (() => void)[] = []
  await using slow = await startTestServer((_, response) => void answers.push(() => response.end()))
  config = {...config, alarmEmailTo: undefined, alarmWebhookUrl: slow.url}
  const first = runAndTell(shrunk)
  await until(() => answers.length > 0)
  now += 2 * 60_000
  const second = tell()
  answers[0]?.()
  await first
  for (const answer of answers) answer()
  await second
  expect(slow.requests).toHaveLength(1)
})

test('a digest that cannot be mailed for an hour is an alarm until one arrives there, or it was given up a day ago', () => {
  const note = (at: number, error: string | null, to = 'gone@example.com') =>
    stateDb.insert('notice', {
      channel: 'email',
      alarm: `digest ${at}`,
      message: JSON.stringify({title: 'Morning', words: '', to}),
      created_at: new Date(at).toISOString(),
      attempts: 1,
      next_attempt_at: at,
      sent_at: error === null ? new Date(at).toISOString() : null,
      error,
    })
  const find = (hours: number) =>
    listAlarms(stateDb, watched(), now + hours * HOUR).filter(({name}) => name === 'digests')
  note(now, "Mail server refused 'gone@example.com'.")
  note(now + 60_000, 'No answer.')
  note(now + HOUR, null, 'here@example.com')
  expect(find(0.5)).toEqual([])
  const words = expect.stringMatching(
    /^That of .* to gone@example\.com failed: Mail server refused.* given up/,
  )
  for (const hours of [2, 95]) expect(find(hours)).toMatchObject([{state: 'unsent', words, since: isoNow()}])
  expect(find(97)).toEqual([])
  note(now + HOUR, null)
  expect(find(2)).toEqual([])
})

test('a channel that takes no message for an hour is shown and told by the other, not by itself, and so is its end', async () => {
  const smtpUrl = 'smtp://night:hush@127.0.0.1:1'
  const working = config
  config = {...config, smtpUrl}
  await runAndTell(shrunk)
  const told = posts.length
  now += HOUR / 2
  await tell()
  expect(posts).toHaveLength(told)
  now += HOUR
  await tell()
  await tell()
  expect(posts.slice(told)).toHaveLength(1)
  expect(posts[told]).toMatch(
    /^\*Messages by email cannot be sent\*\n(?!.*hush).*ECONNREFUSED [\d.:]+\. Each is tried .*LOANTAPE_SMTP_URL/,
  )
  const findAlarm = () => listAlarms(stateDb, watched(), now).find(({name}) => name === 'channel email')
  expect(findAlarm()).toMatchObject({since: '2026-06-01T06:30:00.000Z'})
  config = {...config, smtpUrl: undefined, alarmEmailTo: undefined}
  expect(findAlarm()).toBeUndefined()
  config = working
  now += 2 * HOUR
  await tell()
  await tell()
  expect(posts.slice(told + 1)).toEqual([expect.stringContaining('Recovered: messages are sent by email')])
  expect(mails).toHaveLength(1)
  expect(findAlarm()).toBeUndefined()
})
