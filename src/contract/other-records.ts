import {z} from 'zod'
import {parseInstant} from '../core/clock.ts'
import {type Endpoint, endpointsOf} from './endpoint.ts'
import {pageFields} from './list.ts'
import {dateField, instantField, textField, wordField} from './stream.ts'

const ratePct = z
  .number()
  .min(0)
  .max(100)
  .refine((value) => Number(value.toFixed(4)) === value, 'expected at most 4 decimals')
  .meta({description: 'Percent a year with at most 4 decimals.', examples: [7.125]})

/** A body of `POST /rates`: one pricing update of a provider. */
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

/** A received pricing update. */
export type Rate = z.output<typeof rateSchema>
const rateSchema = z
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
  current: z
    .enum(['true', 'false'])
    .transform((text) => text === 'true')
    .pipe(z.boolean())
    .optional(),
})

/** A body of `POST /deals/{id}/tasks`. */
export type NewTask = z.output<typeof newTaskSchema>
const newTaskSchema = z
  .strictObject({title: textField(200), due_on: dateField.nullish()})
  .meta({id: 'NewTask'})

/** A task of a deal. */
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

/** What `GET /reports/portfolio` returns: amounts are decimal text, exact to the cent. */
const portfolioReportSchema = z
  .object({...totals, by_status: z.array(z.object({status: z.string(), ...totals}))})
  .meta({id: 'PortfolioReport', description: 'Amounts are decimal text, exact to the cent.'})

const task = endpointsOf('Tasks')
const rate = endpointsOf('Rates')
const report = endpointsOf('Reports')

/** The endpoints of tasks, rates and reports. */
export const otherEndpoints = {
  createTask: {
    ...task.post,
    path: '/deals/{id}/tasks',
    summary: 'Create a task on a deal',
    body: newTaskSchema,
    record: taskSchema,
  },
  listTasks: {
    ...task.list,
    path: '/deals/{id}/tasks',
    summary: 'List the tasks of a deal',
    record: taskSchema,
  },
  completeTask: {
    ...task.post,
    path: '/tasks/{id}/complete',
    summary: 'Complete a task; doing so again changes nothing',
    status: 200,
    record: taskSchema,
  },
  pushRate: {
    ...rate.post,
    path: '/rates',
    summary: 'Push a pricing update',
    body: newRateSchema,
    record: rateSchema,
  },
  listRates: {
    ...rate.list,
    path: '/rates',
    summary: 'List pricing updates, oldest first: the whole history, or the rates in force',
    query: rateQuerySchema,
    record: rateSchema,
  },
  getPortfolioReport: {
    ...report.get,
    path: '/reports/portfolio',
    summary: 'Total the portfolio by status',
    record: portfolioReportSchema,
  },
} satisfies Record<string, Endpoint>
