import {existsSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
import {afterAll, beforeAll, expect, test} from 'vitest'
import {writeSqlFolder} from '../build/folder.ts'
import {createLab, type Lab, someDeals} from '../support/lab.ts'
import {readFailure, readJson} from './outcome.ts'

let lab: Lab

beforeAll(async () => {
  lab = await createLab({tables: 'all'})
  lab.service.store.insert(someDeals(3))
  await lab.sync('2026-02-02T23:30:00-05:00')
})

afterAll(() => lab[Symbol.asyncDispose]())

test.concurrent('the report and the dictionary are written into the data folder, and the command says where', async () => {
  const [report, docs] = await Promise.all([lab.run(['report', '--json']), lab.run(['docs'])])
  const file = join(lab.folder.root, `report-${lab.currentReleaseId()}.html`)
  expect(readJson(report)).toEqual({file, release_id: lab.currentReleaseId()})
  expect(readFileSync(file, 'utf8')).toMatch(/^<!doctype html>.*Portfolio report.*<\/html>\n$/s)
  expect(docs.stdout).toBe(`The data dictionary: ${join(lab.folder.root, 'dictionary.html')}\n`)
  expect(readFileSync(join(lab.folder.root, 'dictionary.html'), 'utf8')).toContain('id="core.deal"')
})

test.concurrent('the report of a date or a release is written to the path given', async () => {
  const out = join(lab.folder.root, '../february.html')
  expect(await lab.run(['report', '--as-of', '2026-02-02', '--out', out])).toMatchObject({code: 0})
  expect(readFileSync(out, 'utf8')).toContain('as of <b>2026-02-02</b>')
})

test.concurrent('an output file in a missing folder is refused, and so is an unknown release', async () => {
  const out = join(lab.folder.root, 'nowhere/docs.html')
  const failure = readFailure(await lab.run(['docs', '--out', out, '--json']))
  expect(failure).toMatchObject({code: 'OUT_PLACE', exitCode: 2})
  expect(failure.message).toMatch(/nowhere\/docs\.html' in --out: expected a folder that exists/)
  expect(existsSync(out)).toBe(false)
  expect(readFailure(await lab.run(['report', '--release', 'x', '--json']))).toMatchObject({
    code: 'UNKNOWN_NAME',
  })
})

test.concurrent('a report with a failing own page is not written; the error says where and why', async () => {
  using own = writeSqlFolder({'pages/pipeline.md': '# Ours\n\n```sql\nselect 1\nfrom nowhere\n```\n'})
  const out = join(lab.folder.root, '../failed.html')
  const ended = await lab.run(['report', '--out', out, '--json'], {LOANTAPE_SQL_DIR: own.path})
  const failure = readFailure(ended)
  expect(failure).toMatchObject({code: 'QUERY_FAILED', exitCode: 2})
  expect(failure.message).toMatch(/pages\/pipeline\.md, line 5: Query refused: Catalog Error: .*nowhere/)
  expect(existsSync(out)).toBe(false)
})

test.concurrent('a release of some models has no report; the error names the missing table', async () => {
  const env = {LOANTAPE_DATA_DIR: lab.copyFolder('report-scratch').root}
  await lab.run(['build', '--select', 'mart.run'], env)
  const failure = readFailure(await lab.run(['report', '--release', 'scratch', '--json'], env))
  expect(failure).toMatchObject({code: 'RELEASE_PARTIAL', exitCode: 2})
  expect(failure.message).toMatch(/has no table 'mart\.portfolio_summary'.* Nothing was written\./)
})
