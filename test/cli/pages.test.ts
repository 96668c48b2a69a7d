import {appendFileSync, existsSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {writeSqlFolder} from '../build/folder.ts'
import {DAY_1, someDeals} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {expectRefused, readJson} from './outcome.ts'

const lab = await useLab({tables: 'all', deals: someDeals(3), releasedAt: DAY_1})

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
    [`docs --out ${nowhere}`, 'OUT_PLACE', /nowhere\/docs\.html' in --out: expected a folder that exists/],
    ['report --release ../current', 'UNKNOWN_NAME', /'\.\.\/current'/],
    [`report --out ${out}`, 'QUERY_FAILED', /pages\/pipeline\.md, line 5: Query refused: Catalog.*nowhere/],
    [
      'report --release scratch',
      'RELEASE_PARTIAL',
      /has no table 'mart\.portfolio_summary'.* Nothing was written\./,
    ],
  ] as const)
    await expectRefused(lab.run([...args.split(' '), '--json'], {LOANTAPE_SQL_DIR: own.path}), code, words)
  expect([nowhere, out].map(existsSync)).toEqual([false, false])
})

test('a new page is one to begin with, a check says what is wrong with any, and a page is one file', async () => {
  using own = writeSqlFolder({
    'pages/Größe.md': '# Size',
    'pages/odd.md': '---\ncolour: red\n---\n',
    'pages/wrong.md':
      '---\ntitle: Wrong\n---\n\n```sql matrix\nselect 1 as x\n```\n\n```sql\nselect 1\nfrom nowhere\n```\n',
    'pages/unfit.md': [
      ['matrix', "select 'TX' as state, 'funded' as status, unnest([1, 2]) as deals"],
      ['waterfall', "select unnest(['from', 'to']) as place, 1 as amount, 2 as deals"],
      ['number', 'select unnest([1, 2]) as deals'],
      ['facts', 'select unnest([1, 2]) as deals'],
      ['deals', 'select loan_amount from core.deal'],
      ['deals', "select deal_id, 'much' as amount from core.deal"],
    ]
      .map(([shape, sql]) => `\`\`\`sql ${shape}\n${sql}\n\`\`\`\n`)
      .join(''),
  })
  const env = {LOANTAPE_SQL_DIR: own.path}
  const run = (...args: string[]) => lab.run(args, env)
  const file = join(own.path, 'pages/margins.md')
  expect(readJson(await run('pages', 'new', 'margins', '--json'))).toEqual({name: 'margins', file})
  for (const name of ['margins', 'portfolio', 'wrong'])
    await expectRefused(run('pages', 'new', name, '--json'), 'OUT_PLACE', /there is one already/)
  await expectRefused(run('pages', 'new', '../x', '--json'), 'USAGE', /'..\/x'/)
  expect(await run('pages', 'check', 'margins')).toMatchObject({code: 0})
  const checked = await run('pages', 'check', '--json')
  expect(checked.code).toBe(3)
  expect(JSON.parse(checked.stdout)).toMatchObject({
    failed: 4,
    pages: [
      {name: 'margins', problems: []},
      {name: 'odd', problems: [expect.stringMatching(/^pages\/odd\.md, line 2: 'colour: red'/)]},
      {
        name: 'unfit',
        problems: [
          "line 1: 'state' and 'status' have the same values in several rows: a matrix needs one row for each.",
          'line 4: A waterfall needs one number for each place.',
          'line 7: Figures need one row: there are 2.',
          'line 10: Facts need one row: there are 2.',
          'line 13: A list of deals needs a column deal_id and an amount.',
          'line 16: A list of deals needs a column deal_id and an amount.',
        ].map((problem) => `pages/unfit.md, ${problem}`),
      },
      {
        name: 'wrong',
        problems: [
          'pages/wrong.md, line 5: A matrix needs three columns.',
          expect.stringMatching(/^pages\/wrong\.md, line 11: Query refused: Catalog.*nowhere/),
        ],
      },
      {problems: [expect.stringMatching(/pages\/Größe\.md: no page: expected .* of letters, digits/)]},
    ],
  })
  await expectRefused(run('pages', 'check', 'nothing', '--json'), 'UNKNOWN_NAME', /'nothing'/)

  const out = join(lab.folder.root, '../margins.html')
  appendFileSync(file, '\n<script>alert(1)</script>\n\nA <img src=x onerror=alert(1)> tag.\n')
  expect(await run('report', '--page', 'margins?by=status&state=TX', '--out', out)).toMatchObject({code: 0})
  const page = readFileSync(out, 'utf8')
  expect(page).toMatch(/<h1>Margins<\/h1>.*State <b>TX<\/b>.*<figure class="chart"/s)
  expect(page).not.toMatch(/<script|<img|href="\//)
  await expectRefused(run('report', '--page', 'wrong', '--json'), 'QUERY_FAILED', /line 5.*line 11/s)
  await expectRefused(run('report', '--page', 'margins?created_from=x', '--json'), 'USAGE', /'x'/)
})
