import {execFileSync} from 'node:child_process'
import {existsSync, readdirSync, readFileSync} from 'node:fs'
import {dirname, join} from 'node:path'
import type {Command} from 'commander'
import {expect, test} from 'vitest'
import {parse} from 'yaml'
import {listSettings, renderConfigurationPage, renderEnvExample} from '../../scripts/config-docs.ts'
import {JOURNAL_NAMES} from '../../src/accounting/profiles.ts'
import {readModels} from '../../src/build/read-models.ts'
import {createCli} from '../../src/cli/context.ts'
import {COMMANDS, createProgram} from '../../src/cli/program.ts'
import {CATALOGUE} from '../../src/core/errors.ts'
import {SETTINGS} from '../../src/core/settings.ts'
import {PROFILE_NAMES} from '../../src/export/table-files.ts'
import {SQL_DIR} from '../../src/store/sql.ts'

const ROOT = join(import.meta.dirname, '../..')
const PAGES = [
  'README.md',
  'ARCHITECTURE.md',
  'CONTRIBUTING.md',
  'CHANGELOG.md',
  ...readdirSync(join(ROOT, 'docs'))
    .filter((file) => file.endsWith('.md'))
    .map((file) => `docs/${file}`),
]

const readPage = (page: string) => readFileSync(join(ROOT, page), 'utf8')

/** The code of all of `src/`. */
const CODE = readdirSync(join(ROOT, 'src'), {recursive: true, encoding: 'utf8'})
  .filter((file) => file.endsWith('.ts'))
  .map((file) => readPage(join('src', file)))
  .join('\n')

test('the configuration page and .env.example match the settings: npm run docs', () => {
  expect(readPage('docs/configuration.md')).toBe(renderConfigurationPage())
  expect(readPage('.env.example')).toBe(renderEnvExample())
})

test.each([...PAGES, 'src/core/errors.json'])('every setting that %s names exists', (page) => {
  const known = listSettings().flatMap(({env}) => [env, `${env}_FILE`, `${env}_COMMAND`])
  const named = readPage(page).match(/\bLOANTAPE_[A-Z_]*[A-Z]\b/g) ?? []
  // Kubernetes sets LOANTAPE_PORT.
  expect(named.filter((name) => ![...known, 'LOANTAPE_PORT'].includes(name))).toEqual([])
})

/** Lists the links of a page within the repository: the file, and the heading, if any. */
const linksOf = (page: string) =>
  [...readPage(page).matchAll(/\]\((?!https?:)([^)#]*)#?([^)]*)\)/g)].map(([, path = '', anchor = '']) => ({
    file: path === '' ? page : join(dirname(page), path),
    anchor,
  }))

/** Returns the anchor of a heading in its page. */
const anchorOf = (heading: string) =>
  heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}_\- ]/gu, '')
    .replaceAll(' ', '-')

test.each(PAGES)('every path and heading that %s names exists', (page) => {
  const named = readPage(page).matchAll(/`((?:src|sql|jobs|docs|test|scripts|deploy|\.ci)\/[\w./*-]*)`/g)
  const paths = [...[...named].map(([, path = '']) => path), ...linksOf(page).map(({file}) => file)]
  expect(paths.filter((path) => !path.includes('*') && !existsSync(join(ROOT, path)))).toEqual([])
  const missing = linksOf(page).filter(({file, anchor}) => {
    const headings = anchor === '' ? [] : [...readPage(file).matchAll(/^#+ (.+)$/gm)]
    return anchor !== '' && !headings.some(([, heading = '']) => anchorOf(heading) === anchor)
  })
  expect(missing).toEqual([])
})

test('every loantape command that a page shows exists, with its options', async () => {
  const quiet = {write: () => true}
  const cli = createCli({env: {}, stdout: quiet, stderr: quiet, onStop: () => undefined})
  const program = createProgram(cli)
  const shown = PAGES.flatMap((page) =>
    [...readPage(page).matchAll(/(?:npx |`)loantape ([a-z][^`\n]*)/g)].map(([, words = '']) => words),
  )
  const unknown = shown.filter((words) => {
    const path: Command[] = [program]
    for (const word of words.split(' ')) {
      const next = path.at(-1)?.commands.find((command) => command.name() === word)
      if (next) path.push(next)
    }
    const known = path.flatMap((one) => one.options.map(({long}) => long))
    const options = [...words.matchAll(/(?<=\s)--[a-z-]+/g)].map(([option]) => option)
    return path.length === 1 || options.some((option) => !known.includes(option))
  })
  expect(unknown).toEqual([])
})

test('README.md names every published table, and it, the help and the accounting page every profile', () => {
  const published = readModels([SQL_DIR]).flatMap(({name}) => (name.startsWith('work.') ? [] : name))
  const isNamed = (name: string) => new RegExp(`\\b${name}\\b`).test(readPage('README.md'))
  expect([...published, ...PROFILE_NAMES].filter((name) => !isNamed(name))).toEqual([])
  expect(COMMANDS.export?.args?.['[profile...]']).toBe(PROFILE_NAMES.join(', '))
  for (const name of JOURNAL_NAMES)
    expect(readPage('docs/accounting.md').match(new RegExp(`^\\| \`${name}\` `, 'gm')), name).toHaveLength(2)
})

test('every npm script that a page names exists', () => {
  const scripts = Object.keys((JSON.parse(readPage('package.json')) as {scripts: object}).scripts)
  const named = [
    ...PAGES.map(readPage)
      .join('\n')
      .matchAll(/npm run ([\w:-]+)/g),
  ].map(([, name = '']) => name)
  expect(named.filter((name) => !scripts.includes(name))).toEqual([])
})

test("the image's inputs exist, and .dockerignore lets them in", () => {
  const copied = [...readPage('Dockerfile').matchAll(/^COPY (.+) \S+$/gm)].flatMap(([, names = '']) =>
    names.split(' '),
  )
  const [all, ...letIn] = readPage('.dockerignore').trim().split('\n')
  expect(all).toBe('*')
  expect(letIn.sort()).toEqual(copied.map((name) => `!${name}`).sort())
  expect(copied.filter((name) => !existsSync(join(ROOT, name)))).toEqual([])
  const named = [...CODE.matchAll(/dirname, '(?:\.\.\/){2}([\w-]+)/g)].map(([, folder = '']) => folder)
  expect(named.length).toBeGreaterThan(2)
  expect(named.filter((folder) => !copied.includes(folder))).toEqual([])
})

test('every error of the catalogue is thrown somewhere', () => {
  const code = CODE.replaceAll(/\/\*\*[\s\S]*?\*\//g, '')
  expect(Object.keys(CATALOGUE).filter((name) => !code.includes(`'${name}'`))).toEqual([])
})

test('every setting is read somewhere', () => {
  const unread = Object.keys(SETTINGS).filter((name) => CODE.split(new RegExp(`\\b${name}\\b`)).length < 3)
  expect(unread).toEqual([])
})

test('the composed service reads .env and fixes only its paths and address', () => {
  const {services} = parse(readPage('compose.yaml')) as {
    services: {
      loantape: {env_file: string[]; environment: object; volumes: string[]; healthcheck: {test: string[]}}
    }
  }
  const {env_file, environment, volumes, healthcheck} = services.loantape
  expect(env_file).toEqual(['.env'])
  const isInside = {
    LOANTAPE_DATA_DIR: '/data',
    LOANTAPE_TAPE_KEY_FILE: '/key/tape.key',
    LOANTAPE_WEB_HOST: '0.0.0.0',
    LOANTAPE_WEB_PORT: 8321,
  }
  expect(environment).toEqual(isInside)
  expect(listSettings().map(({env}) => env)).toEqual(expect.arrayContaining(Object.keys(isInside)))
  expect(healthcheck.test.join(' ')).toContain(`127.0.0.1:${isInside.LOANTAPE_WEB_PORT}/`)
  const workDir = /^WORKDIR (.+)$/m.exec(readPage('Dockerfile'))?.[1]
  expect(volumes).toEqual([`data:${isInside.LOANTAPE_DATA_DIR}`, 'key:/key', `./custom:${workDir}/custom:ro`])
})

test('the lockfile names no registry', () => {
  expect(readPage('package-lock.json')).not.toContain('"resolved": "http')
})

test('no tracked file contains the path of one machine', () => {
  const args = ['ls-files', 'src', 'sql', 'jobs', 'scripts']
  const tracked = execFileSync('git', args, {cwd: ROOT, encoding: 'utf8'}).trim().split('\n')
  expect(tracked.filter((file) => /["'`]\/(tmp|root|home|work)\//.test(readPage(file)))).toEqual([])
})
