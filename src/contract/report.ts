import {z} from 'zod'

/** What `GET /reports/portfolio` returns: amounts are decimal text, exact to the cent. */
export interface PortfolioReport {
  deals: number
  amount: string
  by_status: {status: string; deals: number; amount: string}[]
}

const totals = {deals: z.number().int(), amount: z.string()}

/** The schema of {@link PortfolioReport}. */
export const portfolioReportSchema: z.ZodType<PortfolioReport> = z
  .object({...totals, by_status: z.array(z.object({status: z.string(), ...totals}))})
  .meta({id: 'PortfolioReport', description: 'Amounts are decimal text, exact to the cent.'})
