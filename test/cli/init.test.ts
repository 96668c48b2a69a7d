import {existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {parseEnv} from 'node:util'
import {expect, test} from 'vitest'
import {quote} from '../../src/cli/init.ts'
import {runCommand} from '../support/command.ts'
import {type Ended, MAIN, someDeals, startProcess} from '../support/lab.ts'
import {useFolder, useLab} from '../support/set-up.ts'
import {until} from '../support/until.ts'
import {expectRefused, readJson} from './outcome.ts'

const {root} = useFolder().folder
const lab = await useLab({deals: someDeals(3)})
const folder = join(root, 'lender')
const at = (...path: string[]) => join(folder, ...path)

const layOut = (...more: string[]) => runCommand(['init', folder, '--json', ...more], {})

test('a laid out folder syncs, exports, backs up and tests as it is, once it has a key', async () => {
  const {files} = readJson(await layOut('--base-url', lab.service.url)) as {files: string[]}
  expect(files).toEqual([
    ...['.env', '.gitignore', 'jobs/nightly.yaml', 'loantape.service'],
    ...['sql/pages/watch_list.md', 'sql/risk/watch_list.sql', 'sql/tests/risk.watch_list.yaml'],
  ])
  expect(statSync(at('.env')).mode & 0o077).toBe(0)
  const own = parseEnv(readFileSync(at('.env'), 'utf8'))
  expect(own).toMatchObject({LOANTAPE_BASE_URL: lab.service.url, LOANTAPE_API_KEY: ''})
  const env = {
    ...lab.env,
    LOANTAPE_DATA_DIR: at('data'),
    LOANTAPE_SQL_DIR: at(own.LOANTAPE_SQL_DIR!),
    LOANTAPE_JOBS_DIR: at(own.LOANTAPE_JOBS_DIR!),
  }
  expect(await runCommand(['test'], env)).toMatchObject({code: 0, stdout: expect.stringMatching(/^1 case/)})
  using run = lab.start(['run', 'nightly', '--json'], {...env, LOANTAPE_DETAIL: 'off'})
  const ended = await run.ended
  expect(ended.code, ended.stderr).toBe(0)
  const {steps} = JSON.parse(ended.stdout) as {steps: {do: string}[]}
  expect(steps.map((step) => step.do)).toEqual(['sync', 'export', 'backup', 'prune', 'digest'])
  expect(existsSync(at('data/current/risk.watch_list.parquet'))).toBe(true)
  const unit = readFileSync(at('loantape.service'), 'utf8')
  expect(unit).toContain(`WorkingDirectory=${folder}\n`)
  expect(unit).toMatch(new RegExp(`^ExecStart="${process.execPath}" ".+" serve$`, 'm'))
})

test('nothing is written over, and a wrong address is refused before anything is written', async () => {
  for (const url of ['deals.example.com', 'https://deals.example.com/v1\nLOANTAPE_WEB_TOKEN=x'])
    await expectRefused(layOut('--base-url', url), 'CONFIG_INVALID')
  expect(existsSync(folder)).toBe(false)
  mkdirSync(at('jobs'), {recursive: true})
  writeFileSync(at('sql'), '')
  await expectRefused(layOut(), 'OUT_PLACE', "'sql'")
  expect(readdirSync(folder)).toEqual(['jobs', 'sql'])
  // No clone of a lender's folder: git would take a key in .env.
  writeFileSync(at('.gitignore'), 'node_modules/\n')
  await expectRefused(layOut(), 'OUT_PLACE', "'.gitignore'")
  expect(readdirSync(folder)).toEqual(['.gitignore', 'jobs', 'sql'])
  rmSync(folder, {recursive: true})
  expect(await layOut()).toMatchObject({code: 0})
  const before = readdirSync(folder, {recursive: true})
  await expectRefused(layOut(), 'OUT_PLACE', "already has '")
  expect(readdirSync(folder, {recursive: true})).toEqual(before)
})

test('a clone of a laid out folder gets what git leaves out, and keeps the rest', async () => {
  rmSync(folder, {recursive: true, force: true})
  await layOut()
  const ignored = readFileSync(at('.gitignore'), 'utf8').split('\n')
  const left = ['.env', 'loantape.service'].filter((name) => ignored.includes(name))
  for (const name of left) rmSync(at(name))
  writeFileSync(at('jobs', 'nightly.yaml'), 'ours')
  rmSync(at('sql', 'risk'), {recursive: true})
  expect(readJson(await layOut())).toMatchObject({files: ['.env', 'loantape.service']})
  expect(readFileSync(at('jobs', 'nightly.yaml'), 'utf8')).toBe('ours')
  expect(existsSync(at('sql', 'risk'))).toBe(false)
})

test('a key of any characters comes back out of the settings', () => {
  for (const key of ['sk_live_1', 'sk#live', "it's", `a"b'c`, 'a b$c', ''])
    expect(parseEnv(`KEY=${quote(key)}`).KEY, key).toBe(key)
})

/** Lays out the folder as at a terminal: standard input says that it is one. Types each answer once its question is there; null ends the input. */
async function layOutAtTerminal(...answers: (string | null)[]): Promise<Ended> {
  const isTerminal = 'data:text/javascript,process.stdin.isTTY = true'
  using asking = startProcess([process.execPath, '--import', isTerminal, MAIN, 'init', folder], {})
  const questions = ['prefix included: ', 'not shown): ']
  for (const [index, answer] of answers.entries()) {
    await until(() => asking.printed().stderr.includes(questions[index]!))
    if (answer === null) asking.process.stdin.end()
    else asking.process.stdin.write(answer)
  }
  return await asking.ended
}

test('at a terminal, base URL and key are asked for, and the key is not shown', async () => {
  const laidOut = await layOutAtTerminal('https://deals.example.com/v1\r', ' sk_live_1\r')
  expect(laidOut).toMatchObject({code: 0, stdout: expect.stringContaining(`Laid out ${folder}:`)})
  expect(laidOut.stdout + laidOut.stderr).not.toContain('sk_live_1')
  const settings = {LOANTAPE_BASE_URL: 'https://deals.example.com/v1', LOANTAPE_API_KEY: 'sk_live_1'}
  expect(parseEnv(readFileSync(at('.env'), 'utf8'))).toMatchObject(settings)
})

test('an end of input instead of a key writes nothing', async () => {
  const ended = await layOutAtTerminal('https://deals.example.com/v1\r', null)
  expect(ended).toMatchObject({code: 6, stderr: expect.stringContaining('Nothing was written.')})
  expect(existsSync(folder)).toBe(false)
})
