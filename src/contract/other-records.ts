import {z} from 'zod'
import {parseInstant} from '../core/clock.ts'
import {endpointsOf, noBodySchema} from './endpoint.ts'
import {pageFields, pageQuerySchema} from './list.ts'
import {dateField, instantField, textField, wordField} from './stream.ts'

const ratePct = z
  .number()
  .min(0)
  .max(100)
  .refine((value) => Number(value.toFixed(4)) === value, 'expected at most 4 decimals')
  .meta({description: 'Percent a year with at most 4 decimals.', examples: [7.125]})

export type NewRate = z.output<typeof newRateSchema>
const newRateSchema = z
  .strictObject({
    provider: wordField,
    loan_program: wordField.meta({examples: ['bridge_30yr']}),
    rate_pct: ratePct,
    /** Default: the time of receipt. */
    effective_at: z
      .string()
      .refine((text) => parseInstant(text) !== null, 'expected an ISO 8601 instant with an offset')
      .optional()
      .meta({format: 'date-time'}),
  })
  .meta({id: 'NewRate'})

export type Rate = z.output<typeof rateSchema>
export const rateSchema = z
  .object({
    id: z.string(),
    provider: z.string(),
    loan_program: z.string(),
    rate_pct: z.number(),
    effective_at: instantField,
    created_at: instantField,
  })
  .meta({id: 'Rate'})

const rateQuerySchema = z.strictObject({
  ...pageFields,
  provider: wordField.optional(),
  loan_program: wordField.optional(),
  /** Only the rate in force per provider and program. */
  current: z.stringbool({truthy: ['true'], falsy: ['false'], case: 'sensitive'}).optional(),
})

export type NewTask = z.output<typeof newTaskSchema>
const newTaskSchema = z
  .strictObject({title: textField(200), due_on: dateField.nullish()})
  .meta({id: 'NewTask'})

export type Task = z.output<typeof taskSchema>
export const taskSchema = z
  .object({
    id: z.string(),
    deal_id: z.string(),
    title: z.string(),
    due_on: dateField.nullable(),
    status: z.enum(['open', 'completed']),
    created_at: instantField,
    completed_at: instantField.nullable(),
  })
  .meta({id: 'Task'})

const totals = {deals: z.number().int(), amount: z.string()}

const portfolioReportSchema = z
  .object({...totals, by_status: z.array(z.object({status: z.string(), ...totals}))})
  .meta({id: 'PortfolioReport', description: 'Amounts are decimal text, exact to the cent.'})

const task = endpointsOf('Tasks')
const tasks = '/deals/{id}/tasks'
const rate = endpointsOf('Rates')

export const otherEndpoints = {
  createTask: task.post(tasks, 'Create a task on a deal', newTaskSchema, taskSchema),
  listTasks: task.list(tasks, 'List the tasks of a deal', pageQuerySchema, taskSchema),
  completeTask: task.post(
    '/tasks/{id}/complete',
    'Complete a task; doing so again changes nothing',
    noBodySchema,
    taskSchema,
    {status: 200},
  ),
  pushRate: rate.post('/rates', 'Push a pricing update', newRateSchema, rateSchema),
  listRates: rate.list(
    '/rates',
    'List pricing updates, oldest first: the whole history, or the rates in force',
    rateQuerySchema,
    rateSchema,
  ),
  getPortfolioReport: endpointsOf('Reports').get(
    '/reports/portfolio',
    'Total the portfolio by status',
    portfolioReportSchema,
  ),
}
