import {expect, test} from 'vitest'
import type {DigestStep} from '../../src/schedule/job.ts'
import {requireRelease} from '../../src/store/release.ts'
import {renderDigest} from '../../src/web/report.ts'
import {writeSqlFolder} from '../build/folder.ts'
import {aDeal, createLab, someDeals} from '../support/lab.ts'
import {changeRecords} from '../support/set-up.ts'
import {PAGE_TABLES, serveLab} from './side.ts'

test('what needs a person is that of the release, in words; what is of no deal is said once', async () => {
  const value = {loan_amount_cents: 350_000_00n}
  const deals = [
    aDeal(1, {...value, property_value_cents: 1_000_00n}),
    aDeal(2, {...value, property_value_cents: 200_000_00n}),
    aDeal(3, {status: 'parked'}),
    ...someDeals(7, {status: 'uw'}).slice(3),
    ...someDeals(20).slice(7),
  ]
  // A lender's own word counts as ours among deals without an appraisal.
  using own = writeSqlFolder({'seeds/status.csv': 'status,like\nuw,underwriting\n'})
  await using lab = await createLab({deals, tables: PAGE_TABLES})
  changeRecords(lab, '/deals?limit', (listed) => {
    for (const deal of listed) if (deal.id === 'deal_000020') deal.loan_amount = 'much'
  })
  const gone = {kind: 'status', status: 404} as const
  lab.service.faults.add({match: {path: '/deals/deal_000004/documents'}, fault: gone})
  const config = {streams: 'deals,documents', sqlDir: own.path}
  await lab.sync('2026-03-02T20:00:00-05:00', {config})
  lab.service.faults.clear()
  await lab.sync('2026-03-03T20:00:00-05:00', {config, accept: ['shrink']})
  await using side = await serveLab(lab)
  const page = await side.readText('/')
  expect(page).toContain('ltv above 10: taken for unknown')
  expect(page).toContain('ltv above 1.5: kept, in no average')
  // Of both it is known, and neither counts.
  expect(page).toContain('Averaged over 90.0 % of the open amount')
  expect(page).toContain('such as parked (deals 1, amount $350,000.00) What moved the portfolio')
  expect(page).not.toContain('could not be read')
  expect(await side.readText('/?as_of=2026-03-02')).toContain('1 record could not be read the last time')

  expect(await side.readText('/runs')).toMatch(
    / document 2026-03-02 (\S+ ){11}not every list that was due deal /,
  )
  // Not once more for its documents.
  expect((await side.readText('/portfolio')).match(/: Accepted shrink/g)).toHaveLength(1)
  // Parameters in the address do not override what only the program knows.
  expect(await side.readText('/?running=send+the+token&next=x&alarms=x')).not.toContain('send the token')
  const ofTexas = await side.readText('/?state=TX')
  for (const one of [page, ofTexas])
    expect(one).toContain('4 deals of $1,400,000.00 are in underwriting without')
  const ofAllDeals = 'Limits, unread records, entries not issued and findings are of all deals.'
  expect(page).not.toContain(ofAllDeals)
  expect(ofTexas).toContain(ofAllDeals)
  expect(await side.readText('/behind/without_appraisal?state=TX')).toContain('4 deals, $1,400,000.00')
})

test('the second of two walks on the first day is compared, deal by deal, with what readers saw before it', async () => {
  await using lab = await createLab({tables: PAGE_TABLES})
  const {store} = lab.service
  store.insert([
    ...someDeals(30, {status: 'funded'}),
    aDeal(31),
    aDeal(32, {property_address: '1 Elm St, Stamford, CT 06902'}),
  ])
  const first = await lab.sync('2026-03-02T20:00:00-05:00')
  await using side = await serveLab(lab)
  expect(await side.readText('/')).toContain('There is no earlier day or release to compare 2026-03-02 with')

  for (const {id} of someDeals(10)) store.remove(id)
  store.update('deal_000031', {loan_amount_cents: 400_000_00n})
  store.update('deal_000032', {status: 'funded'})
  store.insert([33, 34].map((number) => aDeal(number, {loan_amount_cents: 100_00n})))
  await lab.sync('2026-03-02T21:00:00-05:00', {accept: ['shrink']})
  // Readers never saw a release of a past moment, so it is not compared with.
  expect((await lab.run(['build', '--as-of', '2026-03-02', '--known-at', '2026-03-03T01:30:00Z'])).code).toBe(
    0,
  )
  const page = await side.readText('/')
  const before = 'the release before, as of 2026-03-02, known at 2026-03-02 20:00:00 EST'
  expect(page).toContain(`What moved the portfolio Since ${before}`)
  // Ten deals of 350,000 left, two of 100 came, 50,000 were added, and 350,000 moved from the pipeline to funded.
  expect(page).toContain('−$3,449,800.00 (−30.8 %) since the release before')
  expect(page).toContain('−$3,150,000.00 (−30.0 %) since the release before')
  expect(page).toContain('−$299,800.00 (−42.8 %) since the release before')
  expect(page).toContain('deal_000032 – +$350,000.00 −$350,000.00 draft → funded')
  expect(page).toContain('deal_000031 +$50,000.00 – +$50,000.00 $350,000.00 → $400,000.00')
  expect(page).toMatch(/2 others \+\$200\.00 – \+\$200\.00/)
  expect(page).toMatch(/All −\$3,449,800\.00 −\$3,150,000\.00 −\$299,800\.00/)

  const then = '?as_of=2026-03-02&known_at=2026-03-02T20:00'
  expect(await side.readText(`/${then}`)).toContain('What is known of this day now')
  const compared = await side.readText(`/compare${then}`)
  expect(compared).toContain(
    'Amount $11,200,000.00 $7,750,200.00 −$3,449,800.00 13 Deals 32 deals 24 deals −8 12',
  )
  expect(compared).toContain('deal_000031 +$50,000.00 $350,000.00 → $400,000.00')
  const last = await side.readText('/compare?as_of=2026-03-02')
  expect(last).not.toContain('Every total is the same')
  expect(last).toContain('No release of 2026-03-02 is kept that knows more')

  // A filter applies to both releases.
  const ofPipeline = await side.readText('/?part=pipeline')
  expect(ofPipeline).toMatch(
    /Deals that meet the filter as of \S+\. Changes compare them with the deals that met it/,
  )
  expect(ofPipeline).toContain('deal_000032 −$350,000.00 – −$350,000.00 gone from draft')
  expect(ofPipeline).toMatch(/All −\$299,800\.00 – −\$299,800\.00/)

  expect(await side.readText('/?state=CT')).toMatch(
    /as of \S+\. Changes since a day, charts, durations and rates follow the same deals through time, without those/,
  )

  // Each row leads to its deals, and the total to all of them.
  const [, all = ''] = /<a href="(\/behind\/moved[^"]*)">All</.exec(await side.read()) ?? []
  const behind = await side.readText(all.replaceAll('&amp;', '&'))
  expect(behind).toContain(`Since ${before}`)
  expect(behind).toContain('deal_000033 +$100.00 – +$100.00 came as draft')
  expect(behind).toContain('14 deals, open −$3,449,800.00, funded −$3,150,000.00, pipeline −$299,800.00')
  expect(await side.readText(`${all.replaceAll('&amp;', '&')}&beyond=11`)).toContain(
    '3 deals, open +$50,200.00, funded –, pipeline +$50,200.00',
  )
  expect((await side.get('/behind/moved?against=2026-03-02-000000000000')).status).toBe(404)

  const digest: DigestStep = {do: 'digest', page: 'morning'}
  const moving = await renderDigest(requireRelease(lab.folder), lab.config, {
    ...digest,
    page: 'morning?part=open',
  })
  expect(moving?.html).toContain('Changes compare them with the deals that met it before')
  const words = (await renderDigest(requireRelease(lab.folder), lab.config, digest))?.words
  expect(words).toContain(`\n\nWhat moved the portfolio:\nSince ${before}\n`)
  expect(words).toMatch(
    /\ndeal_000032 · – · \+\$350,000\.00 · −\$350,000\.00 · draft → funded · \d+ .*, [A-Z]{2} \d{5} · \w+.*\n/,
  )

  await lab.sync('2026-03-03T21:00:00-05:00')
  store.update('deal_000031', {loan_amount_cents: 500_000_00n})
  await lab.sync('2026-03-03T22:00:00-05:00')
  const next = await side.readText('/')
  expect(next).toContain('What moved the portfolio Since 2026-03-02.')
  // Of no deals at all the day before is known, too.
  const ofNone = await side.readText('/?state=none')
  expect(ofNone).toContain('Since 2026-03-02. Nothing of what is open')
  expect(ofNone.match(/0 deals, \$0\.00.*? unchanged since 2026-03-02/g)).toHaveLength(4)
  expect(await side.readText('/?state=none&against=2026-03-01')).not.toContain('unchanged')
  const [, id] = /against=(2026-03-03-[0-9a-f]{12})/.exec(await side.read()) ?? []
  expect(await side.readText(`/?against=${id}`)).toMatch(
    /What moved the portfolio Since the release before, as of 2026-03-03.* All \+\$100,000\.00 – \+\$100,000\.00/,
  )
  expect(first.release_id).not.toBe(id)
})
