import {hash} from 'node:crypto'
import {expect, test} from 'vitest'
import {listSettings} from '../../scripts/config-docs.ts'
import {parseConfig, requireSource} from '../../src/core/config.ts'
import {failureOf} from '../support/lab.ts'

const noFiles = {
  readFile: (path: string): string => {
    throw Object.assign(new Error(`no such file: ${path}`), {code: 'ENOENT'})
  },
}

const parse = (env: Record<string, string>) => parseConfig(env, noFiles)
const refusalOf = (env: Record<string, string>) => failureOf((async () => parse(env))())

test('the tape key is in the configuration folder of the user', () => {
  const keyOf = (env: Record<string, string>) => parse({HOME: '/home/ann', ...env}).defaultKeyFile
  expect(keyOf({})).toBe('/home/ann/.config/loantape/tape.key')
  expect(keyOf({XDG_CONFIG_HOME: '/etc/ann'})).toBe('/etc/ann/loantape/tape.key')
  expect(keyOf({XDG_CONFIG_HOME: 'ann'})).toBe('/home/ann/.config/loantape/tape.key')
})

test('a user without a home names the file of the tape key, or is asked to', async () => {
  const findHome = () => {
    throw Object.assign(new Error('no entry'), {code: 'ERR_SYSTEM_ERROR'})
  }
  const parseHomeless = (env: Record<string, string>) => parseConfig(env, {...noFiles, findHome})
  for (const env of [{}, {HOME: 'ann'}]) {
    const refusal = await failureOf((async () => parseHomeless(env))())
    expect(refusal).toMatchObject({code: 'CONFIG_INVALID', exitCode: 2})
    expect(refusal.message).toContain('LOANTAPE_TAPE_KEY_FILE: expected')
  }
  expect(parseHomeless({XDG_CONFIG_HOME: '/etc/ann'}).defaultKeyFile).toBe('/etc/ann/loantape/tape.key')
  expect(parseHomeless({LOANTAPE_TAPE_KEY_FILE: '/srv/key'}).tapeKeyFile).toBe('/srv/key')
})

test('every problem is reported at once', async () => {
  const refusal = await refusalOf({
    LOANTAPE_BASE_URL: 'ftp://deals.example.com',
    LOANTAPE_PAGE_SIZE: '101',
    LOANTAPE_TIME_ZONE: '+05:30',
    LOANTAPE_DAY_CUTOFF: '24:00',
    LOANTAPE_NOW: '2026-01-31',
    LOANTAPE_PAGESIZE: '10',
  })
  expect(refusal).toMatchObject({code: 'CONFIG_INVALID', exitCode: 2})
  for (const words of [
    'Configuration has 6 problems',
    `LOANTAPE_BASE_URL 'ftp://deals.example.com': expected an http or https URL`,
    `LOANTAPE_PAGE_SIZE '101': expected at most 100`,
    `LOANTAPE_TIME_ZONE '+05:30': expected an IANA time zone`,
    `LOANTAPE_DAY_CUTOFF '24:00': expected HH:MM`,
    `LOANTAPE_NOW '2026-01-31': expected an ISO 8601 instant with an offset`,
    'LOANTAPE_PAGESIZE: no such setting',
  ])
    expect(refusal.message).toContain(words)
})

test('a value of another form or beyond its bounds is refused', async () => {
  for (const [name, value] of [
    ['LOANTAPE_DATA_DIR', '/srv/why?/data'],
    ...['0', '-5', '5/s', 'Infinity'].map((rate) => ['LOANTAPE_RATE_PER_SECOND', rate]),
    ['LOANTAPE_DETAIL', 'yes'],
    ['LOANTAPE_SHRINK_LIMIT_PCT', '101'],
    ['LOANTAPE_CLICKHOUSE_URL', 'http://127.0.0.1:8123/?***'],
    ...[' ', 'night', 'night, mail.example.com'].map((to) => ['LOANTAPE_ALARM_EMAIL_TO', to]),
  ] as [string, string][])
    expect((await refusalOf({[name]: value})).message).toContain(`${name} '${value}': `)
})

test('a key, and password and query of a URL, are masked in the error, even under a wrong name', async () => {
  const key = await refusalOf({LOANTAPE_API_KEY: 'my secret key', LOANTAPE_BASE_URL: 'sk_live_abc123'})
  expect(key.message).toContain(`LOANTAPE_API_KEY '***'`)
  expect(key.message).not.toMatch(/secret|abc123/)
  for (const [before, told] of [
    ['ftp://user:hunter2@', 'ftp://user:***@'],
    ['https://user:hunter2@', 'https://user:***@'],
    ['user:hunter2?@', '***@'],
    ['https:/user:hunter2@', '***@'],
  ]) {
    const url = `${before}deals.example.com?hunter2`
    const {message} = await refusalOf({LOANTAPE_BASE_URL: url, LOANTAPE_CLICKHOUSE_URL: url})
    expect(message.split(`_URL '${told}deals.example.com?***': expected`).length).toBeGreaterThan(2)
    expect(message).not.toContain('hunter2')
  }
})

test('the key can be in a readable file, whose line end is dropped; the environment overrides it', async () => {
  const config = parseConfig(
    {LOANTAPE_API_KEY_FILE: '/run/secrets/key'},
    {readFile: (path) => `key of ${path}\n`.replaceAll(' ', '-')},
  )
  expect(config.apiKey).toBe('key-of-/run/secrets/key')
  const both = {LOANTAPE_API_KEY: 'sk_test_env', LOANTAPE_API_KEY_FILE: '/nowhere'}
  expect(parse(both).apiKey).toBe('sk_test_env')
  const {message} = await refusalOf({LOANTAPE_API_KEY_FILE: '/nowhere'})
  expect(message).toContain(`LOANTAPE_API_KEY_FILE '/nowhere': cannot be read (ENOENT)`)
  // In a fleet nothing runs commands.
  const inFleet = () => parseConfig({LOANTAPE_API_KEY_COMMAND: 'pass show key'}, {readFile: () => ''})
  expect(inFleet).toThrow(/LOANTAPE_API_KEY_COMMAND: expected no command in a fleet; name a file/)
  const blank = () => parseConfig({LOANTAPE_API_KEY_FILE: '/blank'}, {readFile: () => ' \n'})
  expect(blank).toThrow(/1 problem:\n {2}- LOANTAPE_API_KEY_FILE '': expected 1 or more printable/)
})

test('a wrong secret is refused, masked, and so is a setting without the one that it needs', async () => {
  for (const [name, value] of [
    ['LOANTAPE_WEBHOOK_SECRET', 'whsec_tooshort'],
    ['LOANTAPE_WEBHOOK_SECRET', `whsec_${'a'.repeat(33)}`],
    ['LOANTAPE_WEB_TOKEN', 'short'],
    ['LOANTAPE_SMTP_URL', 'https://user:hunter2@mail.example.com'],
    // It would mean a server on this machine.
    ['LOANTAPE_SMTP_URL', 'smtp:mail.example.com'],
  ] as const) {
    const refusal = await refusalOf({[name]: value})
    expect(refusal.message).toContain(`${name} '***'`)
    expect(refusal.message).not.toContain(value)
  }
  for (const [name, value, needed] of [
    ['LOANTAPE_ALARM_EMAIL_TO', 'night@example.com', 'LOANTAPE_SMTP_URL'],
    ['LOANTAPE_WEB_VIEWER_TOKEN', 'viewer-token-0001', 'LOANTAPE_WEB_TOKEN'],
  ] as const)
    expect(await refusalOf({[name]: value})).toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringContaining(`${name}: does nothing without ${needed}`),
    })
  const token = 'one-token-for-all'
  for (const same of [
    token,
    `sha256:${hash('sha256', token)}`,
    `sha256:${hash('sha256', token).toUpperCase()}`,
  ]) {
    const equal = await refusalOf({LOANTAPE_WEB_TOKEN: same, LOANTAPE_WEB_VIEWER_TOKEN: token})
    expect(equal.message).toContain('viewers would be operators')
    expect(equal.message).not.toContain(token)
  }
})

test.each([
  [{}, 'LOANTAPE_BASE_URL and LOANTAPE_API_KEY not set'],
  [{LOANTAPE_API_KEY: 'sk_test_1'}, 'No source to read: LOANTAPE_BASE_URL not set'],
  [{LOANTAPE_BASE_URL: 'http://localhost/v1'}, 'No source to read: LOANTAPE_API_KEY not set'],
])('an unconfigured source names what is missing: %o', async (env, words) => {
  const refusal = await failureOf((async () => requireSource(parse(env)))())
  expect(refusal).toMatchObject({code: 'CONFIG_MISSING', exitCode: 2})
  expect(refusal.message).toContain(words)
})

test('every setting is described and accepts its own default; an empty variable counts as unset', () => {
  expect(listSettings().filter(({about}) => about === '')).toEqual([])
  const empty = {LOANTAPE_BASE_URL: '', LOANTAPE_PAGE_SIZE: '', LOANTAPE_API_KEY_FILE: ''}
  expect(parse(empty)).toEqual(parse({}))
  const env = Object.fromEntries(
    listSettings().flatMap((setting) => (setting.default ? [[setting.env, setting.default]] : [])),
  )
  expect(parse(env)).toEqual(parse({}))
})
