import {z} from 'zod'

const totals = {deals: z.number().int(), amount: z.string()}

/** What `GET /reports/portfolio` returns: amounts are decimal text, exact to the cent. */
export type PortfolioReport = z.output<typeof portfolioReportSchema>
export const portfolioReportSchema = z
  .object({...totals, by_status: z.array(z.object({status: z.string(), ...totals}))})
  .meta({id: 'PortfolioReport', description: 'Amounts are decimal text, exact to the cent.'})
