import {z} from 'zod'
import {dateField, instantField, textField} from './fields.ts'

/** A body of `POST /deals/{id}/tasks`. */
export interface NewTask {
  title: string
  /** `YYYY-MM-DD` */
  due_on?: string | null | undefined
}

/** A task of a deal. */
export interface Task {
  id: string
  deal_id: string
  title: string
  due_on: string | null
  status: 'open' | 'completed'
  created_at: string
  completed_at: string | null
}

/** The schema of {@link NewTask}. */
export const newTaskSchema: z.ZodType<NewTask> = z
  .strictObject({title: textField(200), due_on: dateField.nullish()})
  .meta({id: 'NewTask'})

/** The schema of {@link Task}. */
export const taskSchema: z.ZodType<Task> = z
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
