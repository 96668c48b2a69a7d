import {readdirSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {writeSqlFolder} from '../build/folder.ts'
import {startInbox} from '../support/inbox.ts'
import {aDeal, createLab} from '../support/lab.ts'

test("a night reports the day's figures once, what moved them and what needs a person, with the report in the mail, even if an own page of it fails", async () => {
  const portfolio = ['summary', 'breakdown', 'monthly'].map((name) => `+mart.portfolio_${name}`)
  const others =
    '+mart.position_daily +mart.pipeline_aging +mart.data_quality +mart.limit_status +mart.document_coverage +mart.movement'
  await using lab = await createLab({tables: `${portfolio.join(' ')} ${others}`})
  await using inbox = await startInbox()
  using own = writeSqlFolder({'pages/pipeline.md': '# Ours\n\n```sql\nfrom nowhere\n```\n'})
  const {posts, mails} = inbox
  const {LOANTAPE_DEAD_MAN_URL: _none, ...env} = inbox.env
  const night = (now: string, changes = {}) =>
    lab.run(['run', 'nightly'], {...env, LOANTAPE_NOW: now, ...changes})
  const readReport = () => readFileSync(join(lab.folder.current, 'report.html'), 'utf8')
  lab.service.store.insert([aDeal(1), aDeal(2, {status: 'funded'})])
  const ours = {LOANTAPE_SQL_DIR: own.path}
  expect(await night('2026-03-02T23:30:00-05:00', ours)).toMatchObject({code: 0})
  expect(posts[0]).toContain('Pipeline: $350K, 1 deal, $350,000.00')
  expect(readReport()).toContain('pages/pipeline.md, line 4: Query refused: Catalog Error')
  lab.service.store.update('deal_000001', {status: 'funded', loanAmountCents: 350_000_07n})
  lab.service.store.insert([
    aDeal(3, {status: 'a <b> & "c"'}),
    aDeal(4, {
      status: 'held\n- deal_000009: draft → funded\u202e',
      propertyAddress: '</title><script>alert(1)</script>\n1 Main St, Austin, TX 78701',
      loanProgram: '<img src=x onerror=alert(1)>',
    }),
  ])
  expect(await night('2026-03-03T23:30:00-05:00')).toMatchObject({code: 0})
  expect(await night('2026-03-03T23:50:00-05:00')).toMatchObject({code: 0})

  expect(['csv', 'parquet'].map((name) => readdirSync(join(lab.folder.exports, name)).length)).toEqual([2, 2])
  expect(posts).toHaveLength(2)
  expect(posts[1]).toContain('*Portfolio as of 2026-03-03: $1.4M open, $700K funded*')
  expect(posts[1]).toContain(
    'Funded: $700K, 2 deals, $700,000.07 +$350,000.07 (+100.0\u00a0%) since 2026-03-02',
  )
  expect(posts[1]).toContain(
    'deal_000001 · +$0.07 · +$350,000.07 · −$350,000.00 · draft → funded, $350,000.00 → $350,000.07',
  )
  expect(posts[1]).toMatch(
    /What needs a person:\n- .*Every status in use is listed in seed.status: not so for 2 rows, such as a &lt;b&gt; &amp; \\?"c\\?"/,
  )
  expect(posts[1]?.match(/^- .*/gm)).toEqual(
    expect.not.arrayContaining([expect.stringMatching(/^- deal_000009/)]),
  )
  expect(posts[1]).not.toContain('\u202e')
  const report = readReport()
  expect(report).toContain('&lt;img src=x')
  expect(report).not.toMatch(/<script>alert|<img src=x|<\/title><script/)
  expect(mails).toHaveLength(2)
  expect(mails[1]).toContain('filename=report.html')
  expect(await lab.run(['verify'])).toMatchObject({code: 0})
})
