import {appendFileSync, mkdirSync, readFileSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {createFolder} from '../support/data.ts'
import {MAIN, startProcess} from '../support/lab.ts'
import {useShared} from '../support/set-up.ts'
import {until} from '../support/until.ts'

const PYTHON = join(import.meta.dirname, '../../node_modules/.cache/python/bin/python3')
const SECRET = 'a_secret_of_the_desk'

const {folder} = await useShared(createFolder())
const project = join(folder.root, 'lender')

/** Runs a command in the lender's folder, with only its settings. */
async function run(...args: string[]): Promise<string> {
  const env = {XDG_CONFIG_HOME: join(folder.root, 'config')}
  const {code, stdout, stderr} = await startProcess([process.execPath, MAIN, ...args], env, project).ended
  expect(code, `${args.join(' ')}: ${stderr}${stdout}`).toBe(0)
  return stdout
}

const minor = (amount: unknown) => Math.round(Number(amount) * 100)

test('a folder that was laid out reads a service of another kind, night after night, and rehearses its restore', async () => {
  mkdirSync(folder.root, {recursive: true})
  using service = startProcess([PYTHON, join(import.meta.dirname, 'other-source.py'), SECRET], {})
  const port = await until(() => /^\d+/.exec(service.printed().stdout)?.[0])
  const origin = `http://127.0.0.1:${port}`
  const facts = async () => (await (await fetch(`${origin}/facts`)).json()) as Record<string, number>
  mkdirSync(project)
  await run('init', '.', '--base-url', `${origin}/api/v3`)
  appendFileSync(
    join(project, '.env'),
    `LOANTAPE_API_KEY=${SECRET}\nLOANTAPE_TAPE_KEY_FILE=./tape.key\nLOANTAPE_RATE_PER_SECOND=500\n`,
  )
  mkdirSync(join(project, 'data'), {mode: 0o700})
  writeFileSync(
    join(project, 'data/source.json'),
    readFileSync(join(import.meta.dirname, 'other-source.json'), 'utf8').replace(
      'http://127.0.0.1:0',
      origin,
    ),
  )
  const job = (name: string, steps: string) =>
    writeFileSync(
      join(project, `jobs/${name}.yaml`),
      `name: ${name}\nschedule: 0 3 * * 0\ntimeZone: UTC\ncatchUp: latest\ngraceMinutes: 60\nsteps:\n${steps}`,
    )
  job('drill', '  - {do: restore_drill, from: backup}\n')
  expect(await run('doctor', '--try')).toMatch(
    /created_at +booked +"2026-01-01 10:00:00" +"2026-01-01T16:00:00Z"/,
  )
  const read = async () => {
    const sums = `select count(*)::int as deals, sum(loan_amount)::varchar as amount,
      sum(loan_amount) filter (status_class = 'funded')::varchar as funded, count(property_value)::int as valued,
      count(loan_program)::int as with_program from core.deal where not is_missing`
    return JSON.parse(await run('query', sums, '--json')).rows[0] as Record<string, unknown>
  }
  for (const night of ['first', 'second']) {
    await run('run', 'nightly')
    const {deals, minor: total, funded_minor, tokens} = await facts()
    const row = await read()
    expect([night, row.deals, minor(row.amount), minor(row.funded)]).toEqual([
      night,
      deals,
      total,
      funded_minor,
    ])
    expect([row.valued, row.with_program]).toEqual([deals, deals])
    // A token serves 20 requests.
    expect(tokens).toBeGreaterThan(night === 'first' ? 7 : 8)
    await fetch(`${origin}/night`, {method: 'POST'})
  }
  await run('verify', '--rebuild')
  expect(await run('run', 'drill')).toMatch(
    /^Backup \S+ brings back \d+ files and release \S+, as it is kept\.$/m,
  )
}, 600_000)
