import {DEAL_STATUSES} from '../contract/deal.ts'
import {formatCents} from '../money.ts'
import type {Handlers, ServiceWorld} from './handlers.ts'
import type {StatusTotal} from './store.ts'

const LIFECYCLE: readonly string[] = DEAL_STATUSES

function stageOf({status}: StatusTotal): number {
  const stage = LIFECYCLE.indexOf(status)
  return stage === -1 ? LIFECYCLE.length : stage
}

/** Creates the reports. */
export function createReportHandlers({store}: ServiceWorld) {
  return {
    getPortfolioReport: () => {
      const totals = store.totals().sort((one, other) => stageOf(one) - stageOf(other))
      const data = {
        deals: totals.reduce((sum, total) => sum + total.deals, 0),
        amount: formatCents(totals.reduce((sum, total) => sum + total.amountCents, 0n)),
        by_status: totals.map(({status, deals, amountCents}) => ({
          status,
          deals,
          amount: formatCents(amountCents),
        })),
      }
      return {body: {data}}
    },
  } satisfies Partial<Handlers>
}
