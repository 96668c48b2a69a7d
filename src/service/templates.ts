import type {NewDocumentGeneration} from '../contract/document.ts'
import {formatCents, groupThousands} from '../money.ts'
import type {StoredDeal} from './store.ts'

const dollars = (cents: bigint | null): string =>
  cents === null ? 'to be determined' : `$${groupThousands(formatCents(cents))}`

/** Text of a deal as one line that Markdown leaves alone. */
const plain = (text: string): string => text.replace(/\s+/g, ' ').replace(/[\\`*_{}[\]<>()#+!|-]/g, '\\$&')

/** Loan-to-value in percent with two places, half up; the quotient of cents is exact. */
function formatLtv({loanAmountCents, propertyValueCents}: StoredDeal): string {
  if (propertyValueCents === null || propertyValueCents <= 0n) return 'to be determined'
  const hundredths = (loanAmountCents * 20_000n + propertyValueCents) / (2n * propertyValueCents)
  return `${formatCents(hundredths)} %`
}

function renderTermSheet(deal: StoredDeal): string {
  return [
    '# Term sheet',
    '',
    `| | |`,
    `|---|---|`,
    `| Deal | ${deal.id} |`,
    `| Property | ${plain(deal.propertyAddress)} |`,
    `| Loan amount | ${dollars(deal.loanAmountCents)} |`,
    `| Property value | ${dollars(deal.propertyValueCents)} |`,
    `| Loan to value | ${formatLtv(deal)} |`,
    `| Loan program | ${plain(deal.loanProgram ?? 'to be determined')} |`,
    `| Status | ${deal.status} |`,
    '',
    'For discussion only: no commitment to lend.',
    '',
  ].join('\n')
}

function renderClosingChecklist(deal: StoredDeal, counts: {borrowers: number; openTasks: number}): string {
  const box = (isDone: boolean, words: string): string => `- [${isDone ? 'x' : ' '}] ${words}`
  const isFunded = deal.status === 'funded' || deal.status === 'paid_off'
  return [
    '# Closing checklist',
    '',
    `Deal ${deal.id}, ${plain(deal.propertyAddress)}`,
    '',
    box(counts.borrowers > 0, `Borrowers linked: ${counts.borrowers}`),
    box(deal.propertyValueCents !== null, `Property value: ${dollars(deal.propertyValueCents)}`),
    box(deal.loanProgram !== null, `Loan program: ${plain(deal.loanProgram ?? 'to be determined')}`),
    box(counts.openTasks === 0, `Open tasks: ${counts.openTasks}`),
    box(isFunded || deal.status === 'approved', 'Approved'),
    box(isFunded, `Funded: ${dollars(deal.loanAmountCents)}`),
    '',
  ].join('\n')
}

/** Makes a document of a deal, in Markdown. */
export function renderTemplate(
  template: NewDocumentGeneration['template'],
  deal: StoredDeal,
  counts: {borrowers: number; openTasks: number},
) {
  if (template === 'term_sheet')
    return {category: template, name: 'Term sheet', content: renderTermSheet(deal)}
  return {category: template, name: 'Closing checklist', content: renderClosingChecklist(deal, counts)}
}
