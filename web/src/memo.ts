// A component that renders again only if one of its properties is another value.
import { Component, type ComponentChild, type FunctionComponent, h } from 'preact';

export function memo<P extends object>(inner: FunctionComponent<P>): FunctionComponent<P> {
  return class extends Component<P> {
    override shouldComponentUpdate(next: P): boolean {
      const before = this.props as Record<string, unknown>;
      const after = next as Record<string, unknown>;
      const keys = new Set([...Object.keys(before), ...Object.keys(after)]);
      return [...keys].some((key) => before[key] !== after[key]);
    }
    override render(): ComponentChild {
      return h(inner, this.props);
    }
  } as unknown as FunctionComponent<P>;
}
