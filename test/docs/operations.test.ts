import {chmodSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {EXIT_CODES} from '../../src/core/errors.ts'
import {requireJob} from '../../src/schedule/job.ts'
import {listRuns} from '../../src/store/runs.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {FEW_TABLES} from '../support/data.ts'
import {DAY_1, MAIN, someDeals, startProcess} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'

const ROOT = join(import.meta.dirname, '../..')
const page = readFileSync(join(ROOT, 'docs/operations.md'), 'utf8')

/** The text under a heading. */
const sectionOf = (heading: string) => page.split(/^## /m).find((text) => text.startsWith(heading)) ?? ''

/** The fenced blocks of a language in a text. */
const blocksOf = (text: string, language: string) =>
  [...text.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, 'gms'))].map(([, block = '']) => block)

const lab = await useLab({tables: FEW_TABLES, deals: someDeals(20), releasedAt: DAY_1})

test('every command line of the page runs as written', async () => {
  // These never end, or are incomplete.
  const left = ['serve', 'run', 'restore']
  const named = [...page.matchAll(/`npx loantape ([^`]+)`/g)].map(([, words = '']) => words)
  const others = new Set(named.filter((words) => !left.includes(words)))
  expect(others.size).toBeGreaterThan(10)
  for (const words of others) {
    // The command replaces only a lost key.
    if (words.startsWith('tape new-key')) rmSync(lab.env.LOANTAPE_TAPE_KEY_FILE ?? '')
    expect(await lab.run(words.split(' ')), words).toMatchObject({code: 0})
  }
})

test('a backup made as the page says restores everything as it says', async () => {
  const [save, bringBack] = blocksOf(sectionOf('Backup and restore'), 'sh')
  const root = join(lab.folder.root, '..')
  const bin = join(root, 'bin')
  mkdirSync(bin)
  const npx = `command=$1; shift; [ "$command" = node ] || set -- "${MAIN}" "$@"; exec "${process.execPath}" "$@"`
  writeFileSync(join(bin, 'npx'), `#!/bin/sh\n${npx}\n`)
  chmodSync(join(bin, 'npx'), 0o755)
  const {LOANTAPE_DATA_DIR: _default, ...env} = lab.env
  const runBlock = async (block = '') => {
    const shell = startProcess(['sh', '-ec', block], {...env, PATH: `${bin}:${process.env.PATH}`}, root)
    expect(await shell.ended).toMatchObject({code: 0})
  }
  const summary = 'select * from mart.portfolio_summary'
  const before = await lab.query(summary)
  const readRunIds = () => {
    using stateDb = openStateDb(lab.folder.stateDb)
    return listRuns(stateDb, 1000).map(({run_id}) => run_id)
  }
  const runIds = readRunIds()
  await runBlock(save)
  renameSync(lab.folder.root, `${lab.folder.root}.lost`)
  await runBlock(bringBack)
  expect(await lab.query(summary)).toEqual(before)
  expect(readRunIds()).toEqual(expect.arrayContaining(runIds))
  const {walk, changes} = await lab.sync(new Date().toISOString())
  expect([walk.records, changes.unchanged]).toEqual([20, 20])
})

test('the job on the page is the shipped one with its defaults spelled out', async () => {
  const jobsDir = join(lab.folder.root, '../jobs')
  mkdirSync(jobsDir)
  writeFileSync(join(jobsDir, 'nightly.yaml'), blocksOf(page, 'yaml')[0] ?? '')
  const shipped = requireJob(lab.config, 'nightly')
  expect(requireJob({...lab.config, jobsDir}, 'nightly')).toEqual(shipped)
  expect((await lab.run(['jobs', 'list'])).stdout).toContain(`ended after ${shipped.timeoutMinutes}`)
})

test('each exit code has its row', () => {
  const rows = [...sectionOf('It is 3 a.m.').matchAll(/^\| (\d) \|/gm)].map(([, code]) => Number(code))
  // Code 0 is not a failure.
  expect(rows).toEqual([...EXIT_CODES.keys()].slice(1))
})
