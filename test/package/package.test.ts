import {execFileSync} from 'node:child_process'
import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import {tmpdir} from 'node:os'
import {dirname, join} from 'node:path'
import {afterAll, beforeAll, describe, expect, test} from 'vitest'
import {VERSION} from '../../src/core/process.ts'
import {readJson} from '../cli/outcome.ts'
import {API_KEY, insertDeals, startTestService} from '../service/client.ts'
import {runCommand} from '../support/command.ts'
import {createLab, someDeals, startProcess, stopProcess, untilListens} from '../support/lab.ts'

const ROOT = join(import.meta.dirname, '../..')
const {dependencies, engines} = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
  dependencies: object
  engines: {node: string}
}

/** The program, as npm links it into a project. */
const PROGRAM = 'node_modules/.bin/loantape'

describe('the package', () => {
  let project: string

  // Installs the package as npm does, but with the dependencies of this checkout.
  beforeAll(() => {
    project = mkdtempSync(join(tmpdir(), 'loantape-package-'))
    const printed = execFileSync('npm', ['pack', '--json', '--pack-destination', project], {
      cwd: ROOT,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    })
    const [{filename}] = JSON.parse(printed.slice(printed.indexOf('['))) as [{filename: string}]
    const home = join(project, 'node_modules/loantape')
    mkdirSync(join(project, 'node_modules/.bin'), {recursive: true})
    mkdirSync(home)
    execFileSync('tar', ['-xzf', join(project, filename), '-C', home, '--strip-components=1'])
    for (const name of Object.keys(dependencies)) {
      mkdirSync(dirname(join(project, 'node_modules', name)), {recursive: true})
      symlinkSync(join(ROOT, 'node_modules', name), join(project, 'node_modules', name))
    }
    symlinkSync('../loantape/bin/loantape.js', join(project, 'node_modules/.bin/loantape'))
    writeFileSync(join(project, 'package.json'), '{"type": "module"}')
  })
  afterAll(() => rmSync(project, {recursive: true}))

  const run = (command: string[], env: Record<string, string> = {}) =>
    startProcess(command, env, project).ended

  test('leaves nothing behind in the checkout, ships no sources, and has the settings to copy', () => {
    const home = join(project, 'node_modules/loantape')
    expect(readFileSync(join(home, '.env.example'), 'utf8')).toContain('LOANTAPE_BASE_URL=')
    expect(readFileSync(join(home, 'README.md'), 'utf8')).toContain('with Node 24.11 or later')
    const unwanted = [join(ROOT, 'dist'), join(home, 'src'), join(home, 'test')]
    expect(unwanted.filter((path) => existsSync(path))).toEqual([])
  })

  test("following the README from the demo, which accepts no webhook, to one's own service loses nothing", async () => {
    const version = await run(['npx', 'loantape', '--version'])
    expect([version.code, version.stdout.trim()]).toEqual([0, VERSION])
    for (const line of ['demo --deals 20 --days 1', 'report --data demo-data', 'docs --data demo-data']) {
      const {code, stderr} = await run([PROGRAM, ...line.split(' ')])
      expect(code, stderr).toBe(0)
    }
    const bin = join(project, 'node_modules/loantape/bin/loantape.js')
    const ofSource = {
      LOANTAPE_WEB_PORT: '0',
      LOANTAPE_API_KEY: 'sk_test_x',
      LOANTAPE_BASE_URL: 'http://127.0.0.1:9',
      LOANTAPE_WEBHOOK_SECRET: 'whsec_MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAw',
    }
    using serve = startProcess([process.execPath, bin, 'serve', '--data', 'demo-data'], ofSource, project)
    const url = await untilListens(serve)
    const assets = ['workbench', 'sql-editor', '@codemirror/view', 'echarts'].map(
      (name) => `/assets/${name}.js`,
    )
    for (const path of ['/', '/portfolio?part=funded', '/sql?q=select+1', ...assets])
      expect((await fetch(`${url}${path}`)).status, path).toBe(200)
    expect((await fetch(`${url}/webhooks/deals`, {method: 'POST', body: '{}'})).status).toBe(404)
    expect(await stopProcess(serve)).toBe(0)

    await using lab = await createLab({deals: someDeals(7)})
    const {LOANTAPE_DATA_DIR: _default, ...settings} = lab.env
    const lines = Object.entries(settings).map((pair) => pair.join('='))
    writeFileSync(join(project, '.env'), lines.join('\n'))
    const before = readdirSync(project)
    expect(before).toContain('demo-data.tape.key')
    expect(readJson(await run([PROGRAM, 'sync', '--json']))).toMatchObject({changes: {created: 7}})
    expect(readdirSync(project).filter((name) => !before.includes(name))).toEqual(['data'])
    const written = ['data', 'demo-data'].flatMap((name) =>
      readdirSync(join(project, name), {recursive: true, encoding: 'utf8'}).map((path) => join(name, path)),
    )
    expect(written.length).toBeGreaterThan(100)
    const isOpen = (path: string) => {
      const entry = lstatSync(join(project, path))
      return !entry.isSymbolicLink() && (entry.mode & 0o077) !== 0
    }
    expect(['data', 'demo-data', ...written].filter(isOpen)).toEqual([])
    const env = {LOANTAPE_DATA_DIR: join(project, 'demo-data'), LOANTAPE_LOG_LEVEL: 'error'}
    for (const args of [['verify'], ['export', 'csv', '--table', 'core.deal']])
      expect(await runCommand(args, env)).toMatchObject({code: 0})
    const count = ['query', '--format', 'csv', 'select deals from mart.portfolio_summary']
    const kept = await runCommand(count, {LOANTAPE_DATA_DIR: join(project, 'data')})
    expect(kept.stdout).toBe('deals\n7\n')
  })

  test('an older Node is refused with the version needed and the one found', async () => {
    const preload = join(project, 'old.cjs')
    const bin = join(project, 'node_modules/loantape/bin/loantape.js')
    const runOn = (version: string) => {
      writeFileSync(preload, `Object.defineProperty(process.versions, 'node', {value: '${version}'})`)
      return run([process.execPath, '--require', preload, bin, 'status', '--json'])
    }
    for (const version of ['24.11.0', '24.21.0', '26.1.0'])
      expect((await runOn(version)).stderr).not.toContain('NODE_VERSION')
    expect((await runOn('24.9.0')).stderr).toContain('NODE_VERSION')
    const ended = await runOn('20.20.2')
    expect(ended.code).toBe(2)
    expect(ended.stderr).toMatch(
      /^loantape: Node 20\.20\.2: expected 24\.11\.0 or later\. Nothing was started\..*`npm ci --include=dev`.* \[NODE_VERSION\]\n$/,
    )
    expect(JSON.parse(ended.stdout)).toMatchObject({error: {code: 'NODE_VERSION', exit_code: 2}})
    const text = readFileSync(bin, 'utf8')
    expect(engines.node).toBe(`>=${/LEAST = '([\d.]+)'/.exec(text)?.[1]}`)
    // Neither static imports nor top-level await: Node 14 could not parse them, and would say only that.
    expect(text).not.toMatch(/^(import|export) |^\S.*await |\?\.|\?\?/m)
  })

  test('offers its client to a program of the project', async () => {
    await using service = await startTestService()
    insertDeals(service, 3)
    writeFileSync(
      join(project, 'list.js'),
      `import {createDealClient} from 'loantape/client'
       const client = createDealClient({baseUrl: process.env.BASE_URL, apiKey: process.env.API_KEY})
       for await (const deal of client.deals.list({limit: 2})) console.log(deal.id)`,
    )
    const {stdout, stderr} = await run([process.execPath, 'list.js'], {BASE_URL: service.url, API_KEY})
    expect([stdout, stderr]).toEqual(['deal_000001\ndeal_000002\ndeal_000003\n', ''])
  })

  test('types its client for TypeScript', async () => {
    writeFileSync(
      join(project, 'typed.ts'),
      `import {createDealClient, type Deal} from 'loantape/client'
       const client = createDealClient({baseUrl: 'http://127.0.0.1', apiKey: 'sk_test_x'})
       export const deal: Promise<Deal> = client.deals.create({property_address: '1 Main St', loan_amount: 1})
       // @ts-expect-error: no such stage
       client.deals.list({stage: 'closed'})`,
    )
    // The strictest settings a project can have, which check our declarations, too.
    const options =
      '--noEmit --strict --module nodenext --target es2024 --lib esnext --types node --typeRoots'
    const given = [...options.split(' '), join(ROOT, 'node_modules/@types'), 'typed.ts']
    const {code, stdout} = await run([join(ROOT, 'node_modules/.bin/tsc'), ...given])
    expect([stdout, code]).toEqual(['', 0])
  })
})
