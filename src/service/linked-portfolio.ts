import {hash} from 'node:crypto'
import {z} from 'zod'
import type {FileStore} from './files.ts'
import {createRandom, type Random} from './random.ts'
import type {ServiceDatabase} from './service-database.ts'
import type {DealStore, StoredDeal} from './store.ts'

const FIRST_NAMES = [
  'Alex',
  'Dana',
  'Jordan',
  'Kim',
  'Lee',
  'Morgan',
  'Pat',
  'Robin',
  'Sam',
  'Taylor',
] as const
const LAST_NAMES = ['Abara', 'Brandt', 'Castillo', 'Doyle', 'Ekberg', 'Faro', 'Gupta', 'Haas', 'Ito'] as const

/** Investors who borrow again and again; the first of them most often. */
const REGULARS = 400

/** The share of the deals that have a document of a category, by what they have come to. */
const DOCUMENTS: Readonly<Record<string, {name: string; shares: Readonly<Record<string, number>>}>> = {
  application: {
    name: 'Loan application',
    shares: {draft: 0.7, underwriting: 1, approved: 1, funded: 1},
  },
  appraisal: {name: 'Appraisal report', shares: {underwriting: 0.75, approved: 0.98, funded: 1}},
  title: {name: 'Title commitment', shares: {underwriting: 0.4, approved: 0.9, funded: 1}},
  closing: {name: 'Closing statement', shares: {funded: 1}},
}

const linkedRow = z.object({deal_id: z.string(), what: z.string()})

/** What the deals of a portfolio are given. */
interface Linking {
  seed: string | number
  /** What is missing is given between the deal's creation, or this instant if it is later, and `until`; ms. */
  since: number
  until: number
}

/**
 * Gives every deal of `seedPortfolio` and `advanceDay` what it lacks of its borrowers, and of the documents that a deal
 * in its status has; the same seed, deals and days give the same. It draws nothing from the deals' own random numbers.
 */
export function linkPortfolio(
  service: {database: ServiceDatabase; store: DealStore; files: FileStore},
  linking: Linking,
): void {
  const {database, store} = service
  database.transaction(() => {
    const rows = database.all(
      linkedRow,
      `select deal_id, 'borrower' as what from borrower union select deal_id, category as what from document`,
    )
    const linked = new Set(rows.map(({deal_id, what}) => `${deal_id} ${what}`))
    for (const id of store.ids()) {
      const deal = store.get(id)
      if (!deal) continue
      if (!linked.has(`${id} borrower`)) linkBorrowers(database, deal, linking)
      for (const category of Object.keys(DOCUMENTS))
        if (!linked.has(`${id} ${category}`)) attachMissing(service, deal, {...linking, category})
    }
  })
}

function drawMoment(random: Random, deal: StoredDeal, {since, until}: Linking): number {
  const first = Math.max(deal.createdAt, since)
  return first + Math.floor(Math.max(0, until - first) * random.next() ** 2)
}

function linkBorrowers(database: ServiceDatabase, deal: StoredDeal, linking: Linking): void {
  const random = createRandom('borrowers', linking.seed, deal.id)
  const first = random.chance(0.55) ? Math.floor(REGULARS * random.next() ** 3) : deal.id
  const people = random.chance(0.25) ? [first, `${deal.id} second`] : [first]
  for (const label of people) {
    const person = createRandom('person', linking.seed, label)
    const first_name = person.pick(FIRST_NAMES)
    const last_name = person.pick(LAST_NAMES)
    database.insert('borrower', {
      id: `bor_${random.text(16)}`,
      deal_id: deal.id,
      first_name,
      last_name,
      email: `${first_name}.${last_name}.${person.text(6)}@example.com`.toLowerCase(),
      has_ssn_last_four: 1,
      created_at: drawMoment(random, deal, {...linking, until: Math.max(linking.since, deal.createdAt)}),
    })
  }
}

function attachMissing(
  {database, files}: {database: ServiceDatabase; files: FileStore},
  deal: StoredDeal,
  {category, ...linking}: Linking & {category: string},
): void {
  const {name = '', shares = {}} = DOCUMENTS[category] ?? {}
  const random = createRandom('document', linking.seed, deal.id, category)
  if (random.next() >= (shares[deal.status] ?? 0)) return
  const id = `doc_${random.text(16)}`
  const content = `${name} for ${deal.propertyAddress}\n`
  database.insert('document', {
    id,
    deal_id: deal.id,
    category,
    name,
    media_type: 'text/plain; charset=utf-8',
    bytes: Buffer.byteLength(content),
    sha256: hash('sha256', content),
    created_at: drawMoment(random, deal, linking),
  })
  files.place(id, content)
}
