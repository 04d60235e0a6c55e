// What is fetched when the first formula comes.
export { render } from 'katex';
