import {expect, test} from 'vitest'
import {requireRelease} from '../../src/store/release.ts'
import {renderReport} from '../../src/web/report.ts'
import {aDeal, createLab, someDeals} from '../support/lab.ts'
import {expectNumbersToLead} from './page-numbers.ts'
import {PAGE_TABLES, serveLab, textOf} from './side.ts'

test('without deals no loan-to-value is spoken of, and the report shows no shares', async () => {
  await using lab = await createLab({tables: PAGE_TABLES})
  await lab.sync('2026-03-02T23:30:00-05:00')
  await using side = await serveLab(lab)
  for (const path of ['/', '/portfolio']) {
    const page = await side.readText(path)
    expect(page).toContain('0 deals, $0.00')
    expect(page).not.toContain('of what is open')
  }
  const report = (await renderReport(requireRelease(lab.folder), lab.config)).text
  expect(report).toContain('0 deals, $0.00')
  expect(report).not.toMatch(/\d %/)
})

test('each way of a month is a share that leads to its deals, above their number and amount; those that came have a row', async () => {
  await using lab = await createLab({
    tables: 'all',
    deals: [aDeal(1), aDeal(2), aDeal(3), aDeal(4, {status: 'funded'})],
  })
  const {store} = lab.service
  await lab.walk('2026-02-27T23:30:00-05:00')
  store.update('deal_000001', {status: 'underwriting', loan_amount_cents: 9n})
  store.remove('deal_000002')
  store.insert([aDeal(5), aDeal(6, {status: 'underwriting'})])
  await lab.walk('2026-03-02T23:30:00-05:00', {accept: ['growth', 'shrink', 'change']})
  await lab.sync('2026-03-03T23:30:00-05:00')
  await using side = await serveLab(lab)
  const [, section = ''] = /<h2 id="transitions">(.*?)<h2 /s.exec(await side.read('/pipeline')) ?? []
  expect(section.match(/<table>/g)).toHaveLength(1)
  expect(textOf(section)).toContain(
    `From draft underwriting funded (gone)
     draft 33.3 % 1 deal $350,000.00 33.3 % 1 deal $0.09 – 33.3 % 1 deal $350,000.00
     funded – – 100.0 % 1 deal $350,000.00 –
     (new) 50.0 % 1 deal $350,000.00 50.0 % 1 deal $350,000.00 – –`.replaceAll(/\s+/g, ' '),
  )
  expect(section).toContain(
    '<a href="/behind/way?month=2026-03&amp;from=draft&amp;to=underwriting">33.3 %</a>',
  )
  expect(section).toContain('<a href="/behind/way?month=2026-03&amp;from=%28new%29&amp;to=draft">50.0 %</a>')
  // What the first deal came with, not the nine cents that it has now.
  expect(await side.readText('/behind/entered?month=2026-01')).toMatch(
    / First amount ↓ .* deal_000001 \$350,000\.00 /,
  )
  expect(await expectNumbersToLead(side.url, '/pipeline')).toBeGreaterThan(5)
})

test('all ways of a month are shown, however many statuses a lender has', async () => {
  const deals = Array.from({length: 40}, (_, index) => aDeal(index, {status: `step_${index}`}))
  await using lab = await createLab({tables: 'all', deals})
  await lab.sync('2026-03-01T23:30:00-05:00')
  await using side = await serveLab(lab)
  expect((await side.read('/pipeline')).match(/>100\.0 %</g)).toHaveLength(40)
  // Nothing was created in a month that is observed from its first day.
  expect(await side.readText('/pipeline')).toContain('Cohort pull-through 2026-03 so far 0 0 – 0 – 0 – ')
})

test('after a first walk no time in status is known and nothing moved the book; later the numbers of stuck deals lead to exactly those', async () => {
  await using lab = await createLab({tables: 'all'})
  const {store} = lab.service
  const early = {created_at: Date.parse('2026-01-05T12:00:00Z')}
  store.insert([
    aDeal(99, {status: 'funded'}),
    ...[101, 102, 103].map((number) => aDeal(number, {status: 'approved', ...early})),
    ...[104, 105].map((number) => aDeal(number, {status: 'draft', ...early})),
  ])
  await lab.sync('2026-03-02T23:30:00-05:00')
  await using side = await serveLab(lab)
  const first = await side.readText('/pipeline')
  expect(first).toMatch(/draft\s+not known\s+2\s.*approved\s+not known\s+3\s/)
  expect(first).not.toContain('≤7')
  const path = `/behind/aging?in_status=draft&age_band=${encodeURIComponent('unknown (≥ 0)')}`
  expect(await side.readText(path)).toContain('Draft, days in it: not known')
  // Durations are unknown yet.
  expect(first).not.toMatch(/approved\s+all/)
  expect(first).toContain('Only a part of 2026-03 has been seen so far.')
  const still = await side.readText('/portfolio')
  expect(still).toContain('Nothing moved it in 2026-03 so far.')
  expect(still).not.toContain('What moved the funded book')

  store.insert(someDeals(30, {status: 'draft', created_at: Date.parse('2026-03-03T12:00:00Z')}))
  await lab.walk('2026-03-03T23:30:00-05:00', {accept: ['growth']})
  for (const {id} of someDeals(29)) store.update(id, {status: 'underwriting'})
  await lab.walk('2026-03-04T23:30:00-05:00', {accept: ['change']})
  store.update('deal_000099', {loan_amount_cents: 1n})
  await lab.sync('2026-03-12T23:30:00-04:00')
  const moved = await side.read('/portfolio')
  expect(moved).toContain('What moved it in 2026-03 so far.')
  expect(moved).toContain('What moved the funded book')
  const aging = await side.readText('/behind/aging?in_status=draft&age_band=8–14')
  expect(aging).toMatch(/ Draft, days in it: 8–14 .* 1 deal, \$350,000\.00 .* Days in status .* 9 /)
  expect(aging).not.toContain('(blank)')
  expect(await side.readText('/pipeline')).toMatch(/draft\s+8–14\s+1\s+\S+\s+1\s/)
  // Those that left their status are no longer in the pipeline: a deal is not compared with what is chosen.
  for (const path of ['/', '/?part=pipeline'])
    expect(await side.readText(path)).toContain(
      '3 deals of $1,050,000.00 are stuck: longer in their status than 90 % of past deals',
    )
  expect(await side.readText('/behind/stuck?status=draft')).toContain(' 3 deals, $1,050,000.00 ')
  expect(await expectNumbersToLead(side.url, '/pipeline')).toBeGreaterThan(5)
})
