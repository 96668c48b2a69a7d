import {html} from '../page/html.ts'
import {renderPortfolio} from '../page/portfolio-report.ts'
import {readPortfolio} from '../pipeline/report.ts'
import {addressBehind, addressOf, addressOfPart, isDimension} from './filter.ts'
import {renderLimits} from './limits.ts'
import {renderOverTime} from './over-time.ts'
import type {Page, View} from './view.ts'

/** `/portfolio`: what the report says, of the deals that were filtered; a bucket leads to itself. */
export async function viewPortfolio(view: View): Promise<Page> {
  const {tables, release, filter} = view
  const portfolio = await readPortfolio(tables, release.manifest)
  if (portfolio.summary.deals === 0)
    return {
      title: 'Portfolio',
      body:
        filter.condition === undefined
          ? html`<p class="empty">There are no deals.</p>`
          : html`<p class="empty">No deal is like that. <a href="/portfolio">All deals</a></p>`,
    }
  const body = renderPortfolio({
    ...portfolio,
    links: {
      bucket: (dimension, bucket) =>
        isDimension(dimension) ? addressOf('/portfolio', filter, {[dimension]: [bucket]}) : undefined,
      deals(part, dimension, bucket = '') {
        const changes = dimension === undefined ? {} : {[dimension]: [bucket]}
        return part === undefined
          ? addressOf('/deals', filter, changes)
          : addressOfPart(filter, part, changes)
      },
      behind: (number, asked) => addressBehind(number, filter, asked),
      deal: addressOfDeal,
    },
  })
  return {title: 'Portfolio', body: html`${body}${await renderLimits(view)}${await renderOverTime(view)}`}
}

/** The page of a deal. */
export const addressOfDeal = (dealId: string) => `/deals/${encodeURIComponent(dealId)}`
