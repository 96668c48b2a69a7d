/** An error body by RFC 9457, `application/problem+json`. */
export interface Problem {
  type: string
  title: string
  status: number
  detail?: string
  /** Stable, for programs: `invalid_cursor`. */
  code: string
  errors?: {path: string; message: string}[]
}
