import {chmodSync, existsSync, mkdirSync, mkdtempSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {afterAll, expect, test} from 'vitest'
import {runCommand} from '../support/command.ts'
import {FEW_TABLES} from '../support/data.ts'
import {createLab, DAY_1, MAIN, runProgram, someDeals, startProcess} from '../support/lab.ts'
import {expectRefused, readJson, readStanding} from './outcome.ts'

const lab = await createLab({tables: FEW_TABLES, deals: someDeals(3), releasedAt: DAY_1})
const before = await readStanding(lab.folder)
lab.service.requests.clear()

afterAll(async () => {
  const [after, requests] = [await readStanding(lab.folder), lab.service.requests.count]
  await lab[Symbol.asyncDispose]()
  expect(after, 'the stored data is unchanged').toEqual(before)
  expect(requests, 'nothing was started').toBe(0)
})

const wrong: [args: string, code: string, words: RegExp, env?: Record<string, string>][] = [
  ['snyc', 'USAGE', /'snyc' \(Did you mean sync\?\)\. Nothing was started\. .*--help/],
  ['', 'USAGE', /expected a command\. Nothing was started\./],
  ['sync --acept x', 'USAGE', /'--acept' \(Did you mean --accept\?\)/],
  ['sync --accept fate', 'USAGE', /'fate' in --accept: .*shrink, change/],
  [
    'rebuild --without w_1 --without w_2 --why wrong',
    'USAGE',
    /'w_2' in --without: expected it once: take walks back one at a time/,
  ],
  ['sync --why wrong', 'USAGE', /--why 'wrong': .*add --accept\. Nothing was started/],
  ['rebuild --without w_1', 'USAGE', /'w_1' in --without: expected --why with it/],
  ['rebuild --why wrong', 'USAGE', /--why 'wrong': .*add --without\. Nothing was started/],
  ['sync now', 'USAGE', /too many arguments for 'sync'.*now/],
  ['build --as-of 2026-02-30', 'USAGE', /'2026-02-30' in --as-of/],
  ['build --as-of 2026-02-01', 'MOMENT_RANGE', /2026-02-02 \(the first walk\)/],
  ['build --as-of 2099-01-01', 'MOMENT_RANGE', /'2099-01-01': expected 2026-02-02 .* to 20\d\d-/],
  ['build --known-at 2026-02-01T00:00:00Z', 'MOMENT_RANGE', /in --known-at: no walk had been stored by then/],
  ['build --known-at 2026-02-02T10:00', 'USAGE', /in --known-at/],
  ['export csv --decimal ,', 'USAGE', /--decimal: expected another delimiter/],
  ['export csv --preview', 'USAGE', /--preview is for journals/],
  ['export xlsx --bom', 'USAGE', /--bom changes nothing here: expected it with csv/],
  ['service keys create x --db x.db --scope admin', 'USAGE', /'admin' in --scope/],
  ['service keys list', 'USAGE', /--db is missing/],
  ['service keys list --db typo.db', 'SERVICE_DB_OPEN', /'typo\.db': .* found none/],
  ['service keys create x --db missing/x.db', 'SERVICE_DB_OPEN', /missing\/x\.db/],
  ['service --deals 1e99', 'USAGE', /'1e99' in --deals: .*from 0 to/],
  ['quarantine reasons --page 0', 'USAGE', /'0' in --page: expected a whole number from 1 to 1000000/],
  ['demo --days 0', 'USAGE', /'0' in --days: expected a whole number from 1 to 800/],
  ['verify --rebuild --backup b', 'USAGE', /'--backup <dir>' cannot be used with option '--rebuild'/],
  [
    `--data ${import.meta.filename} status`,
    'NOT_WRITABLE',
    /^Data folder '.*' cannot be written: it is a file\. /,
  ],
  ['--data= status', 'USAGE', /Folder '' in --data: expected a path/],
  ['completion tcsh', 'USAGE', /'tcsh' in <shell>: expected bash, zsh, fish/],
  ['status --max-age old', 'USAGE', /'old' in --max-age: .*26h/],
  ['sql', 'USAGE', /`loantape query -`/],
  ['query 1 --format xml', 'USAGE', /'xml' is invalid.*table, csv, json/],
  ['export excel', 'UNKNOWN_NAME', /'excel'.*csv, parquet, xlsx.*, xero.*\. Nothing was changed\./],
  ['export csv --table core.loan', 'UNKNOWN_NAME', /'core\.loan'.*core\.deal,/],
  ['query 1 --release scratch', 'UNKNOWN_NAME', /No scratch release in .*`loantape build --select` makes it/],
  ['query 1 --release ../current', 'UNKNOWN_NAME', /'\.\.\/current'/],
  ['export csv --table deals', 'UNKNOWN_NAME', /the nearest is 'core\.deal'/],
  ['run nightli', 'UNKNOWN_NAME', /the nearest is 'nightly'\. Nothing was changed/],
  ['trace deal_000001 --field statuses', 'UNKNOWN_NAME', /nearest is 'status'/],
  ['trace mart.portfolio_summary.deals --field status', 'USAGE', /with --field or --as-of: .* for a deal/],
  ['report --page deals?as_of=2026-02-02', 'USAGE', /'as_of': expected none; --as-of names the release/],
  ['trace mart.portfolio_summary.open_amnt', 'UNKNOWN_NAME', /the nearest is 'open_amount'/],
  [
    'build --select mart.concentrations+',
    'UNKNOWN_NAME',
    /'mart\.concentrations\+' in --select names no model: .*nearest is 'mart\.concentration'\. Nothing was/,
  ],
  ['diff 2020-01-01 current', 'MOMENT_RANGE', /^Date '2020-01-01': expected 2026-02-02 \(the first walk\)/],
  ['status', 'CONFIG_INVALID', /Value 'borowers' in LOANTAPE_STREAMS/, {LOANTAPE_STREAMS: 'deals,borowers'}],
  ['status', 'CONFIG_INVALID', /LOANTAPE_STREAMS/, {LOANTAPE_STREAMS: 'borrowers'}],
]

test('wrong usage is refused, as one JSON object on request', async () => {
  for (const [args, code, words, env] of wrong)
    await expectRefused(lab.run([...args.split(' ').filter(Boolean), '--json'], env), code, words)
})

test('a misspelled command is reported to people on stderr only', async () => {
  expect(await lab.run(['qeury', 'select 1'])).toMatchObject({
    code: 2,
    stdout: '',
    stderr: expect.stringMatching(/^loantape: .*'qeury' \(Did you mean query\?\).* \[USAGE\]\n$/),
  })
})

test('a failure is seen behind a reader that stops early, too', async () => {
  for (const [args, code] of [
    ['snyc --json', 2],
    ['status --max-age 0h', 1],
    ['explain', 0],
  ] as const) {
    const started = startProcess([process.execPath, MAIN, ...args.split(' ')], lab.env)
    started.process.stdout.destroy()
    expect((await started.ended).code, args).toBe(code)
  }
})

test('an empty data folder has nothing to query and says how to begin', async () => {
  const env = {LOANTAPE_DATA_DIR: join(lab.folder.root, '../empty')}
  const reading = [
    'query 1',
    'export csv',
    'export --reissue b',
    'build',
    'trace d',
    'note list',
    'tape cat w',
  ]
  const keeping = ['backup b', 'rebuild --apply', 'verify', 'prune', 'quarantine list', 'tape go-on --why w']
  for (const command of [...reading, ...keeping, 'period true-up']) {
    const words = 'Run `loantape sync` or `loantape demo` first, after a restore `loantape build`'
    await expectRefused(lab.run([...command.split(' '), '--json'], env), 'RELEASE_NONE', words)
  }
  expect(existsSync(env.LOANTAPE_DATA_DIR)).toBe(false)
  const status = await lab.run(['status', '--json'], env)
  const nothing = {healthy: false, release: null, runs: [], drift: [], quarantine_waiting: 0}
  expect([status.code, readJson(status)]).toMatchObject([1, nothing])
})

test('config says where each setting comes from: the environment overrides .env', async () => {
  const envFile = join(lab.folder.root, '../ours.env')
  // A byte order mark must not hide the first setting.
  writeFileSync(
    envFile,
    '\uFEFFLOANTAPE_PAGE_SIZE=7\nLOANTAPE_TAPE_DAYS=3\nLOANTAPE_STREAMS=deals,documents\n',
  )
  writeFileSync(`${envFile}.key`, 'sk_1\n')
  const env = {LOANTAPE_TAPE_DAYS: '4', LOANTAPE_STREAMS: '', LOANTAPE_API_KEY_FILE: `${envFile}.key`}
  const {stdout} = await runCommand(['config', '--data', '/data/here'], env, {envFile})
  for (const [name, ...shown] of [
    ['DATA_DIR', '/data/here', '--data'],
    ['PAGE_SIZE', '7', '.env'],
    ['TAPE_DAYS', '4', 'environment'],
    // Empty in the environment: that of the file does not count either.
    ['STREAMS', 'deals', 'default'],
    ['API_KEY', '\\*{3}', 'LOANTAPE_API_KEY_FILE in environment'],
  ])
    expect(stdout).toMatch(new RegExp(`^LOANTAPE_${name} +${shown.join(' +')}$`, 'm'))
})

test('nothing in .env is passed over: what is no setting is refused with its line', async () => {
  const envFile = join(lab.folder.root, '../sound.env')
  const read = (text: string | Buffer) => {
    writeFileSync(envFile, text)
    return runCommand(['config', '--json'], {}, {envFile})
  }
  const sound = `# Ours
export LOANTAPE_STAGE = 'a # b' # c
  LOANTAPE_API_KEY= \r
LOANTAPE_PAGE_SIZE=7 # d#e
LOANTAPE_API_KEY=
OTHER=a"b #c

TEXT="-----BEGIN
no = setting
-----END" `
  expect(readJson(await read(sound))).toMatchObject({LOANTAPE_STAGE: 'a # b', LOANTAPE_PAGE_SIZE: 7})
  for (const [text, words] of [
    [Buffer.from('LOANTAPE_PAGE_SIZE=7\n', 'utf16le'), 'line 1: expected NAME=value'],
    [Buffer.from('\uFEFFLOANTAPE_PAGE_SIZE=7\n', 'utf16le'), 'byte 0xFF at 1:1: expected UTF-8'],
    [`${sound}\nLOANTAPE_WEB_TOKEN: sk_live_1`, 'line 11: expected NAME=value'],
    ['A=1\nLOANTAPE-PAGE-SIZE=7', 'line 2: expected NAME=value'],
    ['=x', 'line 1: expected NAME=value'],
    ['A=1\nLOANTAPE_WEB_TOKEN=sk_live#1', 'line 2: expected NAME=value, in quotes if it has a #'],
    ['LOANTAPE_WEB_TOKEN=#sk_live', 'line 1: expected NAME=value'],
    ['LOANTAPE_WEB_TOKEN="sk_live"1', 'line 1: expected NAME=value'],
    ['LOANTAPE_WEB_TOKEN= "sk_live"1', 'line 1: expected NAME=value'],
    ['loantape_page_size=7', 'loantape_page_size: no such setting; the nearest is LOANTAPE_PAGE_SIZE'],
  ] as const) {
    const {message} = await expectRefused(read(text), 'CONFIG_INVALID', words)
    expect(message).not.toContain('sk_live')
  }
})

test('a command in a .env that others may write is refused, and not run', async () => {
  const envFile = join(lab.folder.root, '../theirs.env')
  writeFileSync(envFile, 'LOANTAPE_API_KEY_COMMAND=echo sk_theirs')
  const read = () => runCommand(['config', '--json'], {}, {envFile})
  expect(await read()).toMatchObject({code: 0})
  for (const mode of [0o606, 0o660]) {
    chmodSync(envFile, mode)
    await expectRefused(read(), 'CONFIG_INVALID', /theirs\.env' names a command \(LOANTAPE_API_KEY_COMMAND\)/)
  }
})

test('a folder in the place of .env is named, and help needs no settings', async () => {
  const cwd = mkdtempSync(join(lab.folder.root, '../env-'))
  mkdirSync(join(cwd, '.env'))
  const words = /'\.env' .*\(EISDIR\)\. Nothing was started\./
  await expectRefused(runProgram(['config', '--json'], {}, cwd), 'CONFIG_INVALID', words)
  expect((await runProgram(['--help'], {}, cwd)).code).toBe(0)
})
