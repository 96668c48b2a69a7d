declare global {
  interface JSON {
    rawJSON(text: string): unknown
  }
}

/** A value that `JSON.stringify` writes as this text: a number with more digits than a number of a program holds. */
export const rawJson = (text: string): unknown => JSON.rawJSON(text)
