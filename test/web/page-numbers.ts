import {expect} from 'vitest'

/** Lists the numbers of a page that are links: in cells, figures and sentences. */
function listNumbers(text: string): {href: string; shown: string}[] {
  const links = text.matchAll(/<a href="(\/(?:deals|behind)[^"]*)"[^>]*>([^<]*)<\/a>/g)
  return [...links].flatMap(([, href = '', shown = '']) =>
    /^[−$\d]/.test(shown) && !/^(deal_|\d{4}-\d\d|[\da-f]{12}$)/.test(shown)
      ? [{href: href.replaceAll('&amp;', '&').replaceAll('&#39;', "'").replaceAll('&quot;', '"'), shown}]
      : [],
  )
}

/**
 * Follows every number of a page that is a link, and expects the deals behind it to count or add up to it.
 *
 * @returns how many numbers there were
 */
export async function expectNumbersToLead(url: string, path: string): Promise<number> {
  const ofFilter = new URL(path, url).search.replace(/against=[^&]*/, '')
  const summary = await fetch(`${url}/data/mart.portfolio_summary.json${ofFilter}`)
  const [{funded_amount}] = (await summary.json()) as [{funded_amount: number}]
  const numbers = listNumbers(await (await fetch(url + path)).text())
  const behind = new Map<string, string>()
  for (const {href, shown} of numbers) {
    if (!behind.has(href)) {
      const answer = await fetch(url + href)
      expect(answer.status, href).toBe(200)
      behind.set(href, await answer.text())
    }
    const [, deals = '', sum = ''] =
      /id="total">([\d,]+) deals?, .*?([−$][^<]*)<\/p>/.exec(behind.get(href) ?? '') ?? []
    expect(deals, `${href} is empty`).not.toBe('0')
    if (shown.endsWith('%') && href.startsWith('/behind/largest'))
      expect(`${((Number(sum.replace(/[$,]/g, '')) / funded_amount) * 100).toFixed(1)} %`, href).toBe(shown)
    else if (/%$|^\$[\d.]+[KMBT]$/.test(shown))
      expect(Number(deals.replace(',', '')), href).toBeGreaterThan(0)
    else if (/[$]/.test(shown)) expect(sum, href).toBe(shown)
    else expect(deals, href).toBe(shown.replace(/ .*/, ''))
  }
  return numbers.length
}
