import {existsSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {writeSqlFolder} from '../build/folder.ts'
import {someDeals} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {expectRefused, readJson} from './outcome.ts'

const lab = await useLab({tables: 'all', deals: someDeals(3), releasedAt: '2026-02-02T23:30:00-05:00'})

test('report and dictionary are written into the data folder or to the path given, and the command says where', async () => {
  const {root} = lab.folder
  const file = join(root, `report-${lab.currentReleaseId()}.html`)
  const reported = readJson(await lab.run(['report', '--json']))
  expect(reported).toEqual({file, release_id: lab.currentReleaseId()})
  expect(readFileSync(file, 'utf8')).toMatch(/^<!doctype html>.*Portfolio report.*<\/html>\n$/s)
  const docs = await lab.run(['docs'])
  expect(docs.stdout).toBe(`The data dictionary: ${join(root, 'dictionary.html')}\n`)
  expect(readFileSync(join(root, 'dictionary.html'), 'utf8')).toContain('id="core.deal"')
  const {tables} = readJson(await lab.run(['docs', '--json'])) as {tables: {name: string}[]}
  expect(tables.find(({name}) => name === 'core.document')).toMatchObject({
    kind: 'model',
    description: expect.stringMatching(/document/),
    grain: ['deal_id', 'document_id'],
    contract: 1,
    columns: expect.arrayContaining([
      {name: 'document_id', type: 'VARCHAR', meaning: expect.stringMatching(/\w/)},
    ]),
    reads: expect.arrayContaining(['raw.document_version']),
    read_by: expect.arrayContaining(['mart.document_coverage']),
  })
  expect(tables.find(({name}) => name === 'seed.status')).toMatchObject({kind: 'seed', contract: null})
  const out = join(root, '../february.html')
  expect(await lab.run(['report', '--as-of', '2026-02-02', '--out', out])).toMatchObject({code: 0})
  expect(readFileSync(out, 'utf8')).toContain('as of <b>2026-02-02</b>')
})

test('a page that cannot be written or has no data is refused, and nothing is written', async () => {
  using own = writeSqlFolder({'pages/pipeline.md': '# Ours\n\n```sql\nselect 1\nfrom nowhere\n```\n'})
  await lab.run(['build', '--select', 'mart.run'])
  const nowhere = join(lab.folder.root, 'nowhere/docs.html')
  const out = join(lab.folder.root, '../failed.html')
  for (const [args, code, words] of [
    [['docs', '--out', nowhere], 'OUT_PLACE', /nowhere\/docs\.html' in --out: expected a folder that exists/],
    [['report', '--release', 'x'], 'UNKNOWN_NAME', /'x'/],
    [
      ['report', '--out', out],
      'QUERY_FAILED',
      /pages\/pipeline\.md, line 5: Query refused: Catalog.*nowhere/,
    ],
    [
      ['report', '--release', 'scratch'],
      'RELEASE_PARTIAL',
      /has no table 'mart\.portfolio_summary'.* Nothing was written\./,
    ],
  ] as const)
    await expectRefused(lab.run([...args, '--json'], {LOANTAPE_SQL_DIR: own.path}), code, words)
  expect([nowhere, out].map(existsSync)).toEqual([false, false])
})
