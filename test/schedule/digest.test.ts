import {readdirSync} from 'node:fs'
import {join} from 'node:path'
import {pathToFileURL} from 'node:url'
import {expect, test} from 'vitest'
import {writeSqlFolder} from '../build/folder.ts'
import {startInbox} from '../support/inbox.ts'
import {writeJobFile} from '../support/jobs.ts'
import {aDeal, createLab} from '../support/lab.ts'
import {listViolations} from '../web/browser.ts'
import {openPage} from '../web/side.ts'

function partOf(mail = '', type: string): string {
  const [, head = '', body = ''] =
    new RegExp(`\r\n(Content-Type: ${type}[^]*?)\r\n\r\n([^]*?)\r\n--`).exec(mail) ?? []
  if (/base64/i.test(head)) return Buffer.from(body, 'base64').toString()
  if (!/quoted-printable/i.test(head)) return body
  const bytes = body
    .replaceAll('=\r\n', '')
    .replaceAll(/=([0-9A-F]{2})/g, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)))
  return Buffer.from(bytes, 'latin1').toString()
}

test("a night sends the day's page: figures, what moved them and what needs a person, as mail and as text", async () => {
  const portfolio = ['summary', 'breakdown', 'monthly'].map((name) => `+mart.portfolio_${name}`)
  const others =
    '+mart.position_daily +mart.pipeline_aging +mart.data_quality +mart.limit_status +mart.document_coverage +mart.movement'
  await using lab = await createLab({tables: `${portfolio.join(' ')} ${others}`})
  await using inbox = await startInbox()
  const {posts, mails} = inbox
  const {LOANTAPE_DEAD_MAN_URL: _none, ...env} = inbox.env
  const night = (now: string) => lab.run(['run', 'nightly'], {...env, LOANTAPE_NOW: now})
  lab.service.store.insert([aDeal(1), aDeal(2, {status: 'funded'})])
  expect(await night('2026-03-02T23:30:00-05:00')).toMatchObject({code: 0})
  expect(posts[0]).toContain('Pipeline: $350K, 1 deal, $350,000.00')
  lab.service.store.update('deal_000001', {status: 'funded', loan_amount_cents: 350_000_07n})
  lab.service.store.insert([
    aDeal(3, {status: 'a <b> & "c"'}),
    aDeal(4, {
      status: 'held\n- deal_000009: draft → funded\u202e',
      property_address: '</title><script>alert(1)</script>\n1 Main St, Austin, TX 78701',
      loan_program: '<img src=x onerror=alert(1)>',
    }),
  ])
  expect(await night('2026-03-03T23:30:00-05:00')).toMatchObject({code: 0})

  expect(['csv', 'parquet'].map((name) => readdirSync(join(lab.folder.exports, name)).length)).toEqual([2, 2])
  expect(posts).toHaveLength(2)
  expect(posts[1]).toContain('*Morning as of 2026-03-03*')
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
  expect(mails).toHaveLength(2)
  const shown = partOf(mails[1], 'text/html')
  expect(shown).toContain('<div style="font-size:22px">$700K</div>')
  expect(shown).toContain('such as a &lt;b&gt; &amp; &quot;c&quot;')
  expect(shown, 'mail clients take styles of elements alone').not.toMatch(
    /<(svg|style|script|form|a|img)\b|class=|\u202e/,
  )
  expect(mails[1]).toMatch(/filename=morning-2026-03-03-\w{8}\.html/)
  expect(await lab.run(['verify'])).toMatchObject({code: 0})
})

const PAGE = (asked: string, sql: string) => `\`\`\`sql ${asked}\n${sql}\n\`\`\`\n`
const PAGES = {
  'pages/hits.md':
    "```sql table name=hits empty=''\nselect deal_id from core.deal where $wanted = 'some'\n```\n",
  'pages/twice.md': '# Twice\n\n```page hits wanted=some\n```\n\n```page hits wanted=none\n```\n',
  'pages/states.md': `# By state\n\n${PAGE('title', `select 'In ' || coalesce($place, 'all') || ' <b>' || chr(10) || 'x' as title`)}
${PAGE('line title="Drawn"', 'select day, amount from mart.position_daily')}
${PAGE('table name=large', 'select deal_id, property_address, loan_amount from core.deal where loan_amount > 400000')}`,
  'pages/long.md': PAGE('table', 'select range as n from range(1000000)'),
  'pages/wide.md': PAGE('table', `select repeat('x', 3000) from range(50)`),
  'pages/broken.md': PAGE('table', 'from nowhere'),
  'pages/ours.md': `---\nfor: operators\n---\n\n${PAGE('table', 'select 1 as one')}`,
}

test('any page is sent: to whom alarms go or to others as viewers, when one of its queries has rows, bounded, printable', async () => {
  await using lab = await createLab({tables: 'core.deal +mart.position_daily +mart.portfolio_summary'})
  await using inbox = await startInbox()
  const {posts, mails} = inbox
  lab.service.store.insert([
    aDeal(1),
    aDeal(2, {
      loan_amount_cents: 500_000_00n,
      property_address: '<img src=x onerror=alert(1)>, Austin, TX 78701',
    }),
  ])
  await lab.sync('2026-03-02T23:30:00-05:00')
  using own = writeSqlFolder(PAGES)
  const send = async (step: Record<string, unknown>, more = {}) => {
    using jobs = writeSqlFolder({})
    writeJobFile(jobs.path, 'mail', {steps: [{do: 'digest', ...step}]})
    const {LOANTAPE_DEAD_MAN_URL: _none, ...env} = inbox.env
    const folders = {LOANTAPE_JOBS_DIR: jobs.path, LOANTAPE_SQL_DIR: own.path}
    const {code, stdout, stderr} = await lab.run(['run', 'mail'], {...env, ...folders, ...more})
    return `${code} ${stdout}${stderr}`
  }
  const to = ['ann@example.com', 'bob@example.com']
  expect(await send({page: 'states?place=here&amount_from=400000', when: 'large'})).toContain(
    '0 Digest states?place=here&amount_from=400000: sent.',
  )
  const [mail = ''] = mails
  expect(mail).toMatch(/^To: night@example\.com\r$/m)
  expect(mail.replaceAll('\r\n ', ' ')).toContain(
    'Subject: loantape: In here <b> x, Loan amount from $400,000, place here as of 2026-03-02',
  )
  const shown = partOf(mail, 'text/html')
  expect(shown).toContain('Loan amount from <b>$400,000</b>')
  expect(shown).toContain('place <b>here</b>')
  expect(shown, 'a chart as its values').toMatch(/<td[^>]*>2026-03-02<\/td><td[^>]*>\$500,000\.00<\/td>/)
  expect(shown).toContain('&lt;img src=x')
  expect(posts[0]).toContain('deal_000002 · &lt;img')
  const [printed = ''] = readdirSync(lab.folder.current).filter((name) => name.startsWith('states-'))
  const {page, complaints} = await openPage(pathToFileURL(join(lab.folder.current, printed)).href)
  expect(await page.locator('figure.chart [role=img] svg').count()).toBe(1)
  expect(await listViolations(page)).toEqual([])
  await page.setContent(shown)
  expect(await listViolations(page)).toEqual([])
  expect(complaints).toEqual([])

  // A digest to others shows only what viewers may see.
  expect(await send({page: 'states', to})).toContain('sent')
  expect(mails.slice(1).map((one) => /^To: (.*)\r$/m.exec(one)?.[1])).toEqual(to)
  expect(posts, 'to nobody else').toHaveLength(1)
  const restricted = {LOANTAPE_VIEWER_TABLES: 'mart.*', LOANTAPE_WEB_TOKEN: 'a-token-of-24-characters'}
  expect(await send({page: 'states?place=there', to}, restricted)).toMatch(
    /^2 .*Digest 'states' of job 'mail': pages\/states\.md, line 11: .*'core\.deal' is not for viewers.*It was not sent.*loantape pages check/s,
  )
  expect(await send({page: 'long?state=TX', to}, restricted)).toContain("filter reads table 'core.deal'")
  expect(await send({page: 'ours', to})).toMatch(/^2 .*Page 'ours', for viewers: expected one of/s)
  expect(await send({to}, restricted)).toMatch(/^2 .*Page 'morning', for viewers: expected one of/s)
  expect(await send({page: 'ours'})).toContain('sent')

  // A digest with nothing to say, and mistakes in digests.
  expect(await send({page: 'twice', when: 'hits'})).toContain('sent')
  expect(await send({page: 'states?amount_from=600000', when: 'large'})).toContain('nothing to say')
  expect(await send({page: 'states', when: 'larg'})).toMatch(
    /^2 .*Block 'larg' of page 'states': .*nearest is 'large'/s,
  )
  expect(await send({page: 'sates'})).toMatch(/^2 .*Page 'sates': .*the nearest is 'states'/s)
  expect(await send({page: 'broken'})).toMatch(/^2 .*pages\/broken\.md, line 2: .*nowhere/s)
  expect(await send({page: 'long', to}, {LOANTAPE_SMTP_URL: '', LOANTAPE_ALARM_EMAIL_TO: ''})).toMatch(
    /^2 .*LOANTAPE_SMTP_URL/s,
  )
  const alarmsElsewhere = {LOANTAPE_ALARM_EMAIL_TO: ''}
  const nowhere = {...alarmsElsewhere, LOANTAPE_ALARM_WEBHOOK_URL: ''}
  const counts = [posts.length, mails.length]
  expect(await send({page: 'states?place=NY', to: ['ann@example.com']}, nowhere)).toContain('0 Digest')
  expect(await send({page: 'states?place=NJ', to: ['ann@example.com']}, alarmsElsewhere)).toContain('sent')
  expect(await send({page: 'states?place=NJ', to: ['ann@example.com']}, nowhere)).toContain('already sent')
  expect(mails.slice(-2).map((one) => /place \w+/.exec(one)?.[0])).toEqual(['place NY', 'place NJ'])
  expect(await send({page: 'states?place=NY'}, nowhere)).toContain('no channel')
  expect([posts.length, mails.length]).toEqual([counts[0], Number(counts[1]) + 2])

  const unheard = {LOANTAPE_ALARM_WEBHOOK_URL: 'http://127.0.0.1:1/'}
  expect(await send({page: 'states?place=CA'}, unheard)).toContain(
    '0 Digest states?place=CA: could not be sent to everybody yet. The log says why; later runs',
  )

  // A digest stays short, however much there is.
  const before = mails.length
  expect(await send({page: 'long'})).toContain('sent')
  expect(partOf(mails[before], 'text/html')).toContain('The first 50 rows; the page has more.')
  expect(partOf(mails[before], 'text/html').match(/<tr/g)).toHaveLength(51)
  expect(await send({page: 'wide'})).toContain('sent')
  expect(partOf(mails[before + 1], 'text/html')).toContain('longer than a mail: it is attached')
  expect(mails[before + 1]?.length).toBeLessThan(400_000)
})
